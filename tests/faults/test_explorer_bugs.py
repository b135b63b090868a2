"""The explorer finds each planted bug within a bounded number of rounds. The bound is on rounds, not on time."""

from __future__ import annotations

import pytest

from howdah.postgres.database import Database
from kit.explore import Explorer
from kit.explore_bugs import BUGS, Bug
from kit.explore_worlds import prepared

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

MOST_ROUNDS = 2000
SEED = 15


@pytest.mark.parametrize("bug", BUGS, ids=str)
async def test_a_planted_bug_is_found(direct: Database, bug: Bug):
    async with prepared(bug.world, direct, bug) as (world, conns):
        explorer = Explorer(world, conns, SEED, bug.concerns)
        findings = await explorer.explore(lambda: explorer.rounds < MOST_ROUNDS)
        print(f"seed {SEED}, round {explorer.rounds}: {findings}")
        assert findings
