"""Tasks whose work is done by a program or by a sidecar on the same machine."""
