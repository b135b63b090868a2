"""Every two acts on the same consumer, the second while the first is neither committed nor undone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from howdah.postgres.database import Database
from kit.interleave import Interleavings, fresh_database, meet, switch_off, three_connections
from kit.interleave_consumers import ACTS, AT, FORMS, TO, advance, fault, prepare, resetting

pytestmark = pytest.mark.anyio

ALONE = {"advance", "park", "fault"}
"""What the owner of a partition does, one after the other; two owners are kept apart by the epoch."""


@pytest.fixture(scope="module")
def shared_database(server: Any, template: str) -> Iterator[Database]:
    yield from fresh_database(server, template)


@pytest.fixture(scope="module")
async def interleavings(shared_database: Database) -> AsyncIterator[Interleavings]:
    async with three_connections(shared_database) as three:
        yield Interleavings(three, (await prepare(three.watch)).lay)


@pytest.mark.parametrize("second", ACTS)
@pytest.mark.parametrize("first", ACTS)
async def test_two_acts_meet(interleavings: Interleavings, first: str, second: str):
    for one in [form for form in FORMS if form.act == first]:
        for other in [form for form in FORMS if form.act == second]:
            for commit in (True, False):
                if {first, second} <= ALONE and first != second:
                    continue
                await interleavings.hold(one, other, commit=commit)


async def test_a_batch_under_way_outlives_a_reset_to_where_it_stands(direct: Database):
    """Nothing was moved, and its events are applied once all the same."""
    async with three_connections(direct) as three:
        stand = await (await prepare(three.watch)).lay(three.watch)
        met = await meet(three, lambda conn: resetting(AT)(stand, conn), lambda conn: advance(stand, conn), commit=True)
        (_, _, position, *_), _, applied = await stand.portrait(three.watch)
        assert (met.second, position) in [("settled", TO), ("lost", AT)]
        assert applied == [(each, 1) for each in range(1, position + 1)]


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
async def test_what_the_lock_of_a_fault_is_good_for(direct: Database, guarded: bool):
    async with three_connections(direct) as three:
        if not guarded:
            await switch_off(three.watch, "fault", "for no key update")
        stand = await (await prepare(three.watch)).lay(three.watch)
        await meet(three, lambda conn: resetting(TO)(stand, conn), lambda conn: fault(stand, conn), commit=True)
        assert (await stand.wrongs(three.watch) == []) == guarded
