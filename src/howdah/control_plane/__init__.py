"""Control plane: an HTTP server through which workers without a database claim jobs and report outcomes."""
