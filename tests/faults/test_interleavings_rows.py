"""Every two acts on the same rows of a user's table, the second while the first is neither committed nor undone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from howdah.postgres.database import Database
from kit.interleave import Interleavings, fresh_database, three_connections
from kit.interleave_rows import ACTS, FORMS, prepare

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def shared_database(server: Any, template: str) -> Iterator[Database]:
    yield from fresh_database(server, template)


@pytest.fixture(scope="module")
async def interleavings(shared_database: Database) -> AsyncIterator[Interleavings]:
    async with three_connections(shared_database) as three:
        yield Interleavings(three, (await prepare(three.watch, shared_database.dsn)).lay)


@pytest.mark.parametrize("second", ACTS)
@pytest.mark.parametrize("first", ACTS)
async def test_two_acts_meet(interleavings: Interleavings, first: str, second: str):
    for one in [form for form in FORMS if form.act == first]:
        for other in [form for form in FORMS if form.act == second]:
            for commit in (True, False):
                await interleavings.hold(one, other, commit=commit)
