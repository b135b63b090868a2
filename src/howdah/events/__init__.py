"""The event log, and the consumers that follow it."""
