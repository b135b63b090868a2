"""A private PostgreSQL server for `howdah demo`, `howdah dev` and tests."""
