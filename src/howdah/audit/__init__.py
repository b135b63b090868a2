"""Audit: who did what, from where, and what it was before. Written with the act itself, and never changed."""

from howdah.audit.by import By, acting_as

__all__ = ["By", "acting_as"]
