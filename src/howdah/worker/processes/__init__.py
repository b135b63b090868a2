"""Runs handlers in processes of their own, which can be killed."""
