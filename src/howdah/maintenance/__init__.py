"""Maintenance loops. Each is safe on every node at once; none needs a leader."""
