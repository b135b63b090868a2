"""Random ids of processes.

An id from a sequence can come twice: a crash, or a failover to a standby that lagged, forgets that it was given out.
"""

from __future__ import annotations

import secrets

SMALLEST_NODE = 2**20
"""Ids below were given out by a sequence."""
LARGEST_NODE = 2**31 - 1


def new_node() -> int:
    """Return an id for this process start."""
    return SMALLEST_NODE + secrets.randbelow(LARGEST_NODE - SMALLEST_NODE + 1)
