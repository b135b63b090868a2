"""Fence: the tokens that tell one lease from every other."""

from __future__ import annotations

import secrets

LARGEST = 2**53 - 1
"""The largest token: every integer up to it survives a trip through JSON."""


def new_token() -> int:
    """Draw the token of a lease: random, so that no crash or failover makes a server give it out again."""
    return 1 + secrets.randbelow(LARGEST)
