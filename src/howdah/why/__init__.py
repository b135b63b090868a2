"""Why: why a job does not run, a consumer does not move, a row of yours is left alone."""
