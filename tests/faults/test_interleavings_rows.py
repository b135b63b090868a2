"""Every two acts on the same rows of a user's table, the second while the first is neither committed nor undone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from howdah.postgres.database import Database
from kit.interleave import Meetings, fresh_database, trio
from kit.interleave_rows import ACTS, FORMS, prepare

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def shared_database(server: Any, template: str) -> Iterator[Database]:
    yield from fresh_database(server, template)


@pytest.fixture(scope="module")
async def meetings(shared_database: Database) -> AsyncIterator[Meetings]:
    async with trio(shared_database) as three:
        yield Meetings(three, (await prepare(three.watch, shared_database.dsn)).lay)


@pytest.mark.parametrize("second", ACTS)
@pytest.mark.parametrize("first", ACTS)
async def test_two_acts_meet(meetings: Meetings, first: str, second: str):
    for one in [form for form in FORMS if form.act == first]:
        for other in [form for form in FORMS if form.act == second]:
            for commit in (True, False):
                await meetings.hold(one, other, commit=commit)
