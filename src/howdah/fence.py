"""Random numbers that identify leases and processes.

A number from a sequence can come twice: a crash, or a failover to a standby that lagged, forgets that it was given out.
These are drawn by the process itself, so no server can forget them.
"""

from __future__ import annotations

import secrets

LARGEST_TOKEN = 2**53 - 1
"""The largest whole number that every JSON reader keeps exactly."""
SMALLEST_NODE = 2**20
"""Ids below were given out by a sequence."""
LARGEST_NODE = 2**31 - 1


def new_token() -> int:
    """Return a token for one claim. Tokens have no order."""
    return 1 + secrets.randbelow(LARGEST_TOKEN)


def new_node() -> int:
    """Return an id for this process start."""
    return SMALLEST_NODE + secrets.randbelow(LARGEST_NODE - SMALLEST_NODE + 1)
