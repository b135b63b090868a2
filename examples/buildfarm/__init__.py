"""Builds on machines without a database."""
