"""The companion of a worker on the same machine: clones, runs an agent or a command, commits and pushes."""
