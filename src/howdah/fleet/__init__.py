"""Workers that cannot reach the database: a control plane over HTTP, and the worker that speaks with it."""
