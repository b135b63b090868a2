"""Kinds that are left alone for a while are left alone by nodes with the database, too."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from asyncpg.transaction import Transaction as Block

from howdah import Howdah, RateLimited
from kit.node import ended, eventually, node, state

pytestmark = pytest.mark.anyio

HOLD = "insert into howdah.hold (kind, until, reason) values ($1, now() + $2 * interval '1 second', '429')"


@pytest.fixture
def tasks(app: Howdah) -> dict[str, Any]:
    @app.task
    async def ask() -> None: ...

    @app.task
    async def other() -> None: ...

    @app.task
    async def limited() -> None:
        raise RateLimited("429", retry_after=600, hold=True)

    return {"ask": ask, "other": other, "limited": limited}


async def test_a_held_kind_waits_and_the_others_run(app: Howdah, conn: Any, tasks: dict[str, Any]) -> None:
    await conn.execute(HOLD, "ask", 600.0)
    held, other = await tasks["ask"].enqueue(), await tasks["other"].enqueue()

    async with node(app):
        await ended(conn, other.id)
        assert await state(conn, held.id) == "queued"
        await conn.execute("delete from howdah.hold")
        assert (await ended(conn, held.id))["state"] == "done"


async def test_a_hold_that_is_over_wakes_the_node(app: Howdah, conn: Any, tasks: dict[str, Any]) -> None:
    await conn.execute(HOLD, "ask", 3.0)
    held = await tasks["ask"].enqueue()

    async with node(app, poll=3600):
        row = await ended(conn, held.id, 30)
    assert row["started_at"] >= await conn.fetchval("select until from howdah.hold")


async def test_a_node_with_the_database_says_so_as_well(app: Howdah, conn: Any, tasks: dict[str, Any]) -> None:
    first = await tasks["limited"].enqueue()

    async with node(app, slots=1):
        held = await eventually(lambda: conn.fetchrow("select reason, until - now() as left_over from howdah.hold"))
        assert held["reason"] == "429"
        assert 500 < held["left_over"].total_seconds() <= 600
        second, other = await tasks["limited"].enqueue(), await tasks["other"].enqueue()
        await ended(conn, other.id)
    assert await state(conn, first.id) == "queued"
    row = await conn.fetchrow("select state, attempt from howdah.jobs where id = $1", second.id)
    assert tuple(row) == ("queued", 0)


@pytest.mark.parametrize("lost", ["the answer to the ack", "the answer to the commit"])
async def test_a_hold_is_not_lost_with_an_answer(
    app: Howdah, conn: Any, tasks: dict[str, Any], monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """The ack is carried out, and the connection breaks before the node hears of it."""
    cut: list[str] = []
    fetch, commit = asyncpg.Connection.fetch, Block._Transaction__commit

    def cut_off(reply: str) -> None:
        if reply == lost and not cut:
            cut.append(reply)
            raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")

    async def cut_fetch(self: Any, statement: str, *args: Any, **options: Any) -> Any:
        rows = await fetch(self, statement, *args, **options)
        if ".ack(" in statement.replace('"', ""):
            cut_off("the answer to the ack")
        return rows

    async def cut_commit(self: Any) -> None:
        await commit(self)
        if not self._nested:
            cut_off("the answer to the commit")

    monkeypatch.setattr(asyncpg.Connection, "fetch", cut_fetch)
    monkeypatch.setattr(Block, "_Transaction__commit", cut_commit)

    made = await tasks["limited"].enqueue()
    async with node(app, slots=1):
        held = await eventually(lambda: conn.fetchrow("select kind, until - now() as left_over from howdah.hold"))
        assert held["kind"] == "limited"
        assert 500 < held["left_over"].total_seconds() <= 600
        assert await eventually(lambda: conn.fetchval("select count(*) = 0 from howdah.lease"))
    assert cut == [lost]
    row = await conn.fetchrow("select state, attempt from howdah.jobs where id = $1", made.id)
    assert tuple(row) == ("queued", 1)


async def test_a_hold_that_is_locked_does_not_keep_outcomes_from_being_recorded(
    app: Howdah, conn: Any, tasks: dict[str, Any]
) -> None:
    await conn.execute(HOLD, "limited", 0.0)
    made = await tasks["limited"].enqueue()
    async with conn.transaction():
        await conn.execute("select from howdah.hold for update")
        async with node(app):
            await eventually(lambda: conn.fetchval("select exists (select from howdah.later where id = $1)", made.id))
