"""Sidecar: HTTP service beside a worker that clones, runs an agent or a command, commits and pushes."""
