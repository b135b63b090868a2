"""All pairs of operations on jobs, rows and consumers, in order and together, as the explorer chooses them.

The seed is printed; HOWDAH_EXPLORE_SEED repeats its choices. ``scripts/explore`` explores for longer.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from howdah.postgres.database import Database
from kit.explore import Explorer
from kit.explore_worlds import WORLDS, prepared

pytestmark = pytest.mark.anyio

MOST_ROUNDS = {"jobs": 1000, "rows": 700, "consumers": 700}
MOST_SECONDS = 20.0
"""A slow machine explores less, and needs no longer."""


@pytest.mark.parametrize("name", WORLDS)
async def test_operations_that_meet_leave_what_a_serial_order_leaves(direct: Database, name: str):
    seed = int(os.environ.get("HOWDAH_EXPLORE_SEED", random.randrange(2**31)))
    async with prepared(name, direct) as (world, conns):
        explorer, until = Explorer(world, conns, seed), time.monotonic() + MOST_SECONDS
        findings = await explorer.explore(lambda: explorer.rounds < MOST_ROUNDS[name] and time.monotonic() < until)
        print(f"{name}: {explorer.rounds} rounds, {len(explorer.pairs)} pairs, seed {seed}")
        assert explorer.rounds > 0
        assert findings == [], f"seed {seed}"
