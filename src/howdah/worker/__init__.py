"""The worker: claims jobs from a store, runs their handlers and acknowledges the outcomes."""
