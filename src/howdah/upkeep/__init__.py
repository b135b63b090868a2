"""Loops that tidy. Each is safe on every node at once; none needs a leader."""
