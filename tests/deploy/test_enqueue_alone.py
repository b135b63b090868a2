"""The role that may only call the function: what is quicker for others is not for it, and it never notices."""

from __future__ import annotations

import pytest

from howdah import Howdah

pytestmark = pytest.mark.anyio


async def test_a_role_that_may_not_write_the_tables_enqueues_one_by_one(roles, conn):
    app = Howdah(roles("howdah_enqueue"))

    @app.task
    async def note(n: int) -> None: ...

    made = [await note.enqueue(n) for n in range(3)]
    await app.close()

    assert [each.fresh for each in made] == [True] * 3
    rows = await conn.fetch("select id, args from howdah.jobs where state = 'queued' order by id")
    assert [(row["id"], row["args"]) for row in rows] == [(each.id, b'{"n":%d}' % n) for n, each in enumerate(made)]
