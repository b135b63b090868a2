"""A leader decides in its own term: frozen between reading and writing, it changes nothing once another one leads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from howdah.events.leader import AdvisoryLeadership, Leader, LeaseLeadership
from howdah.postgres import sql
from howdah.postgres.database import Database, Session
from kit.interleave import meet, three_connections
from kit.node import EVENTUALLY_TIMEOUT

pytestmark = pytest.mark.anyio

STATEMENTS = sql.load("howdah.events", schema="howdah")
FIRST, SECOND = 2**20 + 1, 2**20 + 2
LONG = 600.0
FENCES = {"assign": ("and (select count(*) from term) = 1", ""), "reshape": ("from term", "")}
"""What ties a statement to the term, and what it is without it."""


class Gated(Session):
    """A session that stops before a statement of this name, as a process does that is frozen there."""

    def __init__(self, database: Database, statement: str) -> None:
        super().__init__(database, "gated")
        self._before = f"-- {statement}: "
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def fetch(self, statement: str, *args: Any, timeout: float | None = None) -> list[Any]:
        if statement.startswith(self._before):
            self.reached.set()
            await self.go.wait()
        return await super().fetch(statement, *args, timeout=timeout)


@pytest.fixture
async def joined(conn: Any) -> Callable[..., Awaitable[None]]:
    """Registers a node that can consume ``view``, or changes how many partitions it wants."""
    digest = await conn.fetchval(STATEMENTS["declare"], "view", 2, None, None, 0)

    async def join(node: int, partitions: int = 2) -> None:
        await conn.execute(
            "insert into howdah.node (id, name, state, consumers, declared, beat_at)"
            " values ($1::int, 'node ' || $1::int, 'idle', $2, $3, now() + interval '1 hour')"
            " on conflict (id) do update set consumers = excluded.consumers",
            *(node, json.dumps({"view": partitions}).encode(), json.dumps({"view": digest}).encode()),
        )

    return join


@pytest.fixture
async def leading(direct: Database) -> AsyncIterator[Callable[..., Leader]]:
    """Makes the leader of a node, over this session or one of its own."""
    sessions: list[Session] = []

    def make(node: int, session: Session | None = None) -> Leader:
        sessions.append(session or Session(direct, "leader"))
        leadership = LeaseLeadership(sessions[-1], STATEMENTS, node, lease=LONG, dead=LONG)
        return Leader(direct, sessions[-1], leadership, node, dead=LONG)

    yield make
    for session in sessions:
        await session.close()


async def owners(conn: Any) -> dict[int, int | None]:
    return {row["part"]: row["node"] for row in await conn.fetch("select part, node from howdah.consumer_partition")}


async def taken_over(conn: Any, successor: Leader) -> None:
    """Let the lease of the leader run out, and another one lead and decide."""
    await conn.execute("update howdah.leader set expires_at = now() - interval '1 second'")
    await successor.tick()
    assert successor.leads


@pytest.mark.parametrize("statement", FENCES)
@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "unfenced"])
async def test_a_leader_that_was_frozen_decides_nothing_in_the_term_of_another(
    conn: Any, direct: Database, joined: Any, leading: Any, statement: str, fenced: bool
):
    await joined(FIRST, 2 if statement == "assign" else 3)  # a partition to give, or partitions to change
    gated = Gated(direct, statement)
    frozen = leading(FIRST, gated)
    if not fenced:
        before, after = FENCES[statement]
        assert frozen._sql[statement].count(before) == 1
        frozen._sql = {**frozen._sql, statement: frozen._sql[statement].replace(before, after)}
    deciding = asyncio.create_task(frozen.tick())
    await asyncio.wait_for(gated.reached.wait(), EVENTUALLY_TIMEOUT)

    await conn.execute("delete from howdah.node")
    await joined(SECOND, 2)
    await taken_over(conn, leading(SECOND))
    assert await owners(conn) == {0: SECOND, 1: SECOND}
    gated.go.set()
    await asyncio.wait_for(deciding, EVENTUALLY_TIMEOUT)

    assert (await owners(conn) == {0: SECOND, 1: SECOND}) == fenced


async def test_a_term_that_was_begun_again_is_another_one(conn, direct, joined, leading):
    """The same node leads, another one, and the same node again: what it decided in its first term does not count."""
    await joined(FIRST)
    gated = Gated(direct, "assign")
    late = asyncio.create_task(leading(FIRST, gated).tick())
    await asyncio.wait_for(gated.reached.wait(), EVENTUALLY_TIMEOUT)
    await joined(SECOND)
    await taken_over(conn, leading(SECOND))
    await taken_over(conn, leading(FIRST))
    decided = await owners(conn)
    assert sorted(decided.values()) == [FIRST, SECOND]
    gated.go.set()
    await asyncio.wait_for(late, EVENTUALLY_TIMEOUT)

    assert await owners(conn) == decided


def taking(node: int) -> Callable[[Any], Awaitable[Any]]:
    return lambda conn: conn.fetchval(STATEMENTS["lead"], node, LONG, LONG)


@pytest.mark.parametrize("statement", FENCES)
async def test_a_decision_and_a_new_term_take_turns(conn, direct, joined, statement):
    await joined(FIRST)
    term = await taking(FIRST)(conn)
    await conn.execute("update howdah.leader set expires_at = now() - interval '1 second'")
    leader = (FIRST, term)

    async def decide(conn: Any) -> Any:
        if statement == "assign":
            return await conn.fetchval(STATEMENTS["assign"], ["view"], [0], [FIRST], *leader)
        return await conn.fetchval(STATEMENTS["reshape"], "view", 2, *leader)

    async with three_connections(direct) as three:
        met = await meet(three, decide, taking(SECOND), commit=True)
        assert (bool(met.first), met.waited) == (True, True)
        assert met.second > term

        await conn.execute("update howdah.leader set node = $1, since = $2, expires_at = now()", *leader)
        met = await meet(three, taking(SECOND), decide, commit=True)
        assert (bool(met.second), met.waited) == (False, True)


async def test_terms_rise_although_the_clock_goes_back(conn, joined):
    for node in (FIRST, SECOND):
        await joined(node)
    first = await taking(FIRST)(conn)
    assert await taking(FIRST)(conn) == first, "the same term goes on"
    ahead = first + timedelta(days=1)  # as of a server whose clock was ahead
    await conn.execute("update howdah.leader set since = $1, expires_at = now() - interval '1 second'", ahead)

    second = await taking(SECOND)(conn)
    assert second > ahead
    await conn.execute("update howdah.leader set node = null")
    key = "howdah leader"
    assert await conn.fetchval(STATEMENTS["record_leader"], FIRST, LONG, key) > second


async def test_a_leader_by_a_lock_that_lost_its_session_does_not_write_down_that_it_leads(conn, direct):
    candidates = [AdvisoryLeadership(direct, STATEMENTS, node, lease=LONG) for node in (FIRST, SECOND)]
    try:
        assert await candidates[0].lead() is not None
        assert await candidates[1].lead() is None
        await candidates[0]._session.close()  # as the server does to a session that is idle for too long
        while (term := await candidates[1].lead()) is None:
            await asyncio.sleep(0.01)  # until the server has seen that the session ended
        assert await candidates[0].lead() is None

        assert tuple(await conn.fetchrow("select node, since from howdah.leader")) == (SECOND, term)
    finally:
        for leadership in candidates:
            await leadership.close()
