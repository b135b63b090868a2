"""Audit log: actor, action, address and previous value. Written in the transaction of the action, never changed."""

from howdah.audit.trail import Actor, acting_as

__all__ = ["Actor", "acting_as"]
