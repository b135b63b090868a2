"""The benchmark: what Howdah does on this machine and this PostgreSQL, with everything on that is on by default."""
