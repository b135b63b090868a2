"""Two releases of an application at once: jobs of kinds and with arguments that a node does not know."""

from __future__ import annotations

import pytest

from howdah import Howdah
from kit.node import drain, ended, job, node, state

pytestmark = pytest.mark.anyio


async def test_kinds_of_the_release_to_come_wait_for_it(database, app, conn):
    new = Howdah(database.dsn)

    @app.task(name="old")
    @new.task(name="old")
    async def old() -> None: ...

    @new.task(name="new")
    async def added() -> None: ...

    waiting = [(await added.enqueue()).id for _ in range(5)]
    async with node(app):
        known = await old.enqueue()
        assert (await ended(conn, known.id))["state"] == "done"
        assert {await state(conn, id) for id in waiting} == {"queued"}
        async with node(new):
            assert {(await ended(conn, id))["state"] for id in waiting} == {"done"}
    assert await conn.fetchval("select count(*) from howdah.attempt") == 0
    await new.close()


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ('{"id": 1, "lang": "de"}', "unknown argument `lang`"),
        ("{}", "missing argument `id`"),
        ('{"id": "one"}', "expected `int`, got `str`"),
        ('{"id": 1}', None),
        ('{"id": 1, "copies": 2}', None),
    ],
    ids=["of-a-newer", "of-an-older", "of-another", "default", "whole"],
)
async def test_arguments_of_another_signature_fail_at_once_and_can_be_retried(database, app, conn, args, complaint):
    @app.task(name="send", max_attempts=5)
    async def send(id: int, copies: int = 1) -> int:
        return copies

    id = await conn.fetchval("select id from howdah.enqueue('send', $1::json, max_attempts => 5)", args.encode())
    await drain(app)
    row = await job(conn, id)
    if complaint is None:
        assert row["state"] == "done"
        return
    assert (row["state"], row["attempt"]) == ("failed", 1)
    assert row["error"].startswith("Poison: task 'send' cannot be called with these arguments: ")
    assert complaint in row["error"]

    fitting = Howdah(database.dsn)

    @fitting.task(name="send")
    async def send_all(id: int | str | None = None, lang: str = "en") -> None: ...

    await conn.execute("select howdah.retry(array[$1::bigint])", id)
    await drain(fitting)
    assert await state(conn, id) == "done"
    await fitting.close()
