"""Example of a build farm: builds on machines without a database."""
