"""The demo: a small shop whose background work is real, and whose only pretence is the work itself."""
