"""Tasks that run programs, and the sidecar that runs them beside a worker."""
