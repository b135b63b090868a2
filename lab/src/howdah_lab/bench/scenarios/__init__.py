"""Scenarios of the benchmark."""
