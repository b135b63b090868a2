"""Nodes of two releases start and stop in any order: no event is skipped for the consumers as currently declared."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import AsyncExitStack
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from howdah import Howdah, Transaction
from howdah.postgres import sql
from howdah_lab.torture.declaration_check import AddedEvent, CurrentDeclaration, ReleaseHistory, check
from howdah_lab.torture.release import NEW, OLD, PARTITIONS
from kit.node import eventually, node

pytestmark = pytest.mark.superuser("makes tables and triggers beside those of Howdah")

EXAMPLES = os.environ.get("HOWDAH_FAULT_EXAMPLES")
LONGEST = 90.0
"""Seconds that all of them together may take on a slow machine."""
SETTINGS = settings(
    max_examples=int(EXAMPLES or 4),
    derandomize=EXAMPLES is None,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
STATEMENTS = sql.load("howdah_lab.torture", schema="howdah", run_schema="torture")
TYPES = {OLD: ["Happened"], NEW: ["Happened", "Ordered"]}
EFFECT = (
    "insert into torture.effect (front, mark, stream, version, attempt, token, pid) values ($1, $2, $3, $4, 0, 0, 0)"
)
BEHIND = """
select count(*) from howdah.checkpoint k where k.position < (select max(e.position) from howdah.event e)
"""


def application(dsn: str, release: str, consumers: tuple[str, ...]) -> Howdah:
    """The consumers of the torture, as a release declares them."""
    app = Howdah(dsn)

    async def leave(front, event, tx):
        await tx.execute(EFFECT, front, event.data["mark"], event.stream, event.version)

    async def widened(event, tx: Transaction) -> None:
        await leave("widened", event, tx)

    async def cut(event, tx: Transaction) -> None:
        await leave("cut", event, tx)

    app.consumer("widened", types=TYPES[release])(widened)
    if "cut" in consumers:
        app.consumer("cut", types=TYPES[OLD], partitions=PARTITIONS[release])(cut)
    return app


class Rollout:
    """Starts and stops nodes while events are appended."""

    def __init__(self, dsn: str, *consumers: str) -> None:
        self.dsn = dsn
        self.consumers = consumers
        self.nodes: list[tuple[str, AsyncExitStack]] = []
        self.marks = count(1)
        self.client = Howdah(dsn)

    async def play(self, act: str, release: str) -> None:
        if act == "start":
            stack, app = AsyncExitStack(), application(self.dsn, release, self.consumers)
            stack.push_async_callback(app.close)
            running = await stack.enter_async_context(node(app, rebalance=0.2, lease=5.0))
            await eventually(lambda: _announced(self.conn, running))
            self.nodes.append((release, stack))
        else:
            for each in [each for each in self.nodes if each[0] == release][:1]:
                self.nodes.remove(each)
                await each[1].aclose()

    async def append(self) -> None:
        """A few events of both types, each with the newest declaration_change that is committed before."""
        for stream in range(4):
            declaration_change = await self.conn.fetchval(STATEMENTS["newest_declaration_change"])
            happened = {"type": "Happened", "data": {"mark": next(self.marks)}}
            ordered = {"type": "Ordered", "data": {"mark": next(self.marks), "declaration_change": declaration_change}}
            await self.client.log.append(f"S-{stream}", [happened, ordered])

    async def run(self, acts: list[tuple[str, str]]) -> list[str]:
        """Play these acts, then start a new node, and wait until all is consumed; returns what the checker finds."""
        self.conn = await self.client.database.connect("test")
        try:
            await self.play("start", OLD)
            await eventually(self._owned)
            for act, release in acts:
                await self.append()
                await self.play(act, release)
            await self.play("start", NEW)
            await self.append()
            await eventually(self._over, LONGEST)
            return [str(found) for found in check(await self._declared())]
        finally:
            for _, stack in self.nodes:
                await stack.aclose()
            await self.conn.execute(
                "truncate torture.effect, torture.declaration_change, howdah.consumer, howdah.event cascade"
            )
            await self.conn.close()
            await self.client.close()

    async def _owned(self) -> bool:
        return await self.conn.fetchval("select bool_and(node is not null) from howdah.consumer_partition")

    async def _over(self) -> bool:
        return await self.conn.fetchval(BEHIND) == 0

    async def _declared(self) -> ReleaseHistory:
        conn, effects = self.conn, Counter[tuple[str, int]]()
        for row in await conn.fetch(STATEMENTS["effects"]):
            effects[row["front"], row["mark"]] += 1
        events = {row["mark"] for row in await conn.fetch(STATEMENTS["events"]) if row["type"] == "Happened"}
        declaration_changes = await conn.fetch(STATEMENTS["declaration_changes"])
        return ReleaseHistory(
            declarations=[
                CurrentDeclaration(row["id"], "Ordered" in row["types"], row["reached"]) for row in declaration_changes
            ],
            added=[AddedEvent(**row) for row in await conn.fetch(STATEMENTS["ordered"])],
            events=events,
            effects={
                name: Counter({mark: times for (front, mark), times in effects.items() if front == name})
                for name in self.consumers
            },
        )


async def _announced(conn, running) -> bool:
    return bool(await conn.fetchval("select declared is not null from howdah.node where id = $1", running.node))


@pytest.fixture
def dsn(database):
    async def lay_out():
        conn = await database.connect("test")
        await conn.execute(STATEMENTS["open"])
        await conn.close()

    asyncio.run(lay_out())
    return database.dsn


ACTS = st.lists(st.tuples(st.sampled_from(["start", "stop"]), st.sampled_from([OLD, NEW])), max_size=5)


def test_nodes_of_two_releases_in_any_order_skip_nothing(dsn):
    @SETTINGS
    @given(ACTS)
    def rolls_out(acts):
        assert asyncio.run(Rollout(dsn, "widened", "cut").run(acts)) == []

    rolls_out()


@pytest.mark.anyio
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "without the guard"])
async def test_a_node_that_consumes_whatever_it_declared_is_found(dsn, conn, guarded):
    """The old node owns the consumer when the new one comes; without the guard it keeps it, and passes events over."""
    if not guarded:
        await conn.execute(STATEMENTS["without_declaration"])
    found = await Rollout(dsn, "widened").run(
        [("start", NEW)]
    )  # one partition, which does not move while its node lives
    assert any("skipped" in each for each in found) != guarded, found
