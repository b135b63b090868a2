"""Demo: a small shop on real queues, tables and events; only the work of the handlers is simulated."""
