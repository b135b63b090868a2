"""Howdah's own queue: jobs in tables of ours."""
