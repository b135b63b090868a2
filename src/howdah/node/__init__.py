"""Nodes: registration, heartbeats and sources of work of a running process."""
