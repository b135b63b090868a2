"""The gates agree with the claim: when all are open somebody takes the job, when one is closed nobody does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import msgspec
import pytest

from howdah import Howdah, NewJob
from howdah.jobs.store import JobStore
from howdah.jobs.wakeup import SharedConnections
from howdah.postgres import sql
from howdah.postgres.database import Database, Session

pytestmark = pytest.mark.anyio

QUEUES = ("mail", "builds", "builds+gpu")
KINDS = ("send", "build")
DUE = -1
"""The delay of a job that has fallen due, and that nobody has moved to its queue yet."""


@dataclass(frozen=True)
class Node:
    """A node that claims only when it is told to."""

    queues: tuple[str, ...] | None
    kinds: tuple[str, ...]
    labels: tuple[str, ...]
    slots: int
    running: int
    limit: int | None
    fate: str
    remote: bool = False
    id: int = 0


@dataclass(frozen=True)
class Waiting:
    """A job, or a run of them."""

    queue: str
    kind: str
    priority: int
    count: int
    delay: float


@dataclass(frozen=True)
class Situation:
    """Who is there, and what waits."""

    nodes: list[Node]
    jobs: list[Waiting]
    paused: set[str]
    held: set[str]
    locked: bool


def situation(seed: str) -> Situation:
    """The same for the same seed. Most things are as usual, or hardly any job could run."""
    random = Random(seed)

    def mostly(usual: Any, *others: Any) -> Any:
        return random.choice(others) if random.random() < 0.25 else usual

    def node() -> Node:
        return Node(
            queues=mostly(None, ("mail",), ("builds",), ("mail", "builds"), ("builds+gpu",)),
            kinds=mostly(KINDS, ("send",), ("build",)),
            labels=mostly(("gpu",), (), ("arm64", "gpu")),
            slots=random.randint(1, 5),
            running=random.randint(0, 3),
            limit=mostly(None, 1, 2),
            fate=mostly("idle", "draining", "silent", "offline"),
            remote=mostly(False, True),
        )

    def job() -> Waiting:
        return Waiting(
            queue=mostly("mail", "builds", "builds+gpu"),
            kind=random.choice(KINDS),
            priority=mostly(0, -1, 7),
            count=random.randint(1, 3),
            delay=mostly(0, DUE, 3600),
        )

    return Situation(
        nodes=[node() for _ in range(mostly(1, 0, 2))],
        jobs=[job() for _ in range(random.randint(1, 3))],
        paused=mostly(set(), {"mail"}, {"builds"}),
        held=mostly(set(), {"send"}),
        locked=mostly(False, True),
    )


class World:
    """A database with nodes and jobs in it, made anew for each example."""

    def __init__(self, app: Howdah, conn: Any, other: Any, database: Database) -> None:
        self.app, self.conn, self.other, self._database = app, conn, other, database
        self._shared = SharedConnections(Session(database, "claim"), Session(database, "ack"), None)
        self._jobs = sql.load("howdah.jobs", schema="howdah")

    async def make(self, each: Situation) -> list[int]:
        await self.conn.execute(
            "truncate howdah.job, howdah.done, howdah.ready, howdah.later, howdah.lease, howdah.gone, howdah.node,"
            " howdah.queue, howdah.hold restart identity"
        )
        self.held = set[str]()
        self.nodes = [await self._node(node) for node in each.nodes]
        for node in self.nodes:
            await self._occupy(node)
        ids = []
        for job in each.jobs:
            ids += await self._enqueue(job)
        for queue in each.paused:
            await self.conn.execute("select howdah.pause($1)", queue)
        for kind in each.held:
            await self.conn.execute(self._jobs["hold"], kind, 60.0, "not so fast")
        self.held = each.held
        return ids

    async def _node(self, node: Node) -> Node:
        limits = msgspec.json.encode({"mail": node.limit, "builds": node.limit}).decode() if node.limit else None
        id = await self.conn.fetchval(
            "insert into howdah.node (name, queues, kinds, labels, slots, limits, state, remote, beat_at) values"
            " ('n', $1, $2, $3, $4, $5::text::json, $6, $7, now() - $8 * interval '1 second') returning id",
            node.queues,
            node.kinds,
            node.labels,
            node.slots,
            limits,
            "idle" if node.fate == "silent" else node.fate,
            node.remote,
            100.0 if node.fate == "silent" else 1.0,
        )
        return replace(node, id=id)

    async def _occupy(self, node: Node) -> None:
        """Let a node run something that it claimed, within its slots and limits."""
        for _ in range(min(node.running, node.slots)):
            await self.conn.execute("select howdah.enqueue($1, queue => 'mail')", node.kinds[0])
            store, claimed = self._store(node), []
            if (node.limit or 9) > await self._holds(node, "mail"):
                claimed = await store.claim(1, {})
            if not claimed:
                await self.conn.execute("delete from howdah.ready")

    async def _enqueue(self, each: Waiting) -> list[int]:
        if each.delay == 0:
            job = NewJob(kind=each.kind, queue=each.queue, priority=each.priority)
            return [made.id for made in await self.app.enqueue_many([job] * each.count)]  # they are one run
        rows = await self.conn.fetch(
            "select (howdah.enqueue($1, queue => $2, priority => $3, delay => $4)).id from generate_series(1, $5)",
            each.kind,
            each.queue,
            each.priority,
            60.0 if each.delay == DUE else float(each.delay),
            each.count,
        )
        if each.delay == DUE:
            await self.conn.execute(
                "update howdah.later set due_at = now() - interval '1 hour' + id * interval '1 ms' where id = any($1)",
                [row["id"] for row in rows],
            )
        return [row["id"] for row in rows]

    async def taken(self) -> set[int]:
        """Every job that some node takes with its next claims, whichever of its queues has the first turn."""
        found: set[int] = set()
        for node in self.nodes:
            if node.fate == "idle" and (free := node.slots - await self._holds(node)) > 0:
                for turn in range(len(QUEUES)):
                    found |= await self._claim(node, free, turn)
        return found

    async def _claim(self, node: Node, free: int, turn: int) -> set[int]:
        store, found = self._store(node), list[Any]()
        store._claimer._scope._rotation = turn
        room = {queue: node.limit - await self._holds(node, queue) for queue in ("mail", "builds") if node.limit}
        async with self._undone():
            while free > len(found) and (claimed := await store.claim(free - len(found), self._left(room, found))):
                found += claimed
        return {job.id for job in found}

    @asynccontextmanager
    async def _undone(self) -> AsyncIterator[None]:
        """What is claimed meanwhile is as if it had never been."""
        async with self._shared.claims.use() as conn:
            begun = conn.transaction()
            await begun.start()
        yield
        await begun.rollback()

    def _left(self, room: dict[str, int], found: list[Any]) -> dict[str, int]:
        return {queue: most - sum(job.queue == queue for job in found) for queue, most in room.items()}

    def _store(self, node: Node) -> JobStore:
        kinds = [kind for kind in node.kinds if kind not in self.held]
        return JobStore(
            self._database,
            node.id,
            kinds=kinds,
            queues=node.queues,
            lease=60,
            poll=5,
            notify=False,
            pool=None,
            labels=node.labels,
            shared=self._shared,
        )

    async def _holds(self, node: Node, queue: str | None = None) -> int:
        """How many jobs a node holds; none of those here is over."""
        return int(
            await self.conn.fetchval(
                "select count(*) from howdah.jobs"
                " where state = 'running' and node = $1 and ($2::text is null or queue = $2)",
                node.id,
                queue,
            )
        )

    @asynccontextmanager
    async def locked(self, ids: list[int]) -> AsyncIterator[None]:
        """Somebody holds the places of these jobs in an open transaction."""
        async with self.other.transaction():
            await self.other.fetch("select from howdah.ready where lo = any($1) for update", ids)
            await self.other.fetch("select from howdah.later where id = any($1) for update", ids)
            yield

    async def close(self) -> None:
        await self._shared.claims.close()
        await self._shared.acks.close()
        await self.app.close()


@pytest.fixture
async def world(app: Howdah, conn: Any, direct: Database) -> Any:
    other = await direct.connect("other")
    world = World(app, conn, other, direct)
    yield world
    await world.close()
    other.terminate()


async def agrees(world: World, each: Situation) -> set[int]:
    """Those whose gates are all open are those that are taken; returns them."""
    ids = await world.make(each)
    async with world.locked(ids[:1] if each.locked else []):
        answers = {id: await world.app.why.job(id) for id in ids}
        taken = await world.taken()

    assert {id for id in ids if all(gate.open for gate in answers[id])} == taken, (each, answers)
    return {ids.index(id) for id in taken}


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_the_situation(world: World, seed: int) -> None:
    for number in range(12):
        await agrees(world, situation(f"{seed}.{number}"))


async def test_nodes_that_claim_nothing(world: World) -> None:
    able = Node(queues=None, kinds=KINDS, labels=(), slots=3, running=1, limit=None, fate="idle")
    job = Waiting(queue="mail", kind="send", priority=0, count=1, delay=0)

    for fate, taken in {"idle": {0}, "draining": set(), "silent": set(), "offline": set()}.items():
        assert await agrees(world, Situation([replace(able, fate=fate)], [job], set(), set(), False)) == taken


async def test_one_node_has_a_slot_and_another_has_room(world: World) -> None:
    able = Node(queues=None, kinds=KINDS, labels=(), slots=3, running=1, limit=1, fate="idle")
    nodes = [able, replace(able, slots=1, limit=None)]
    job = Waiting(queue="mail", kind="send", priority=0, count=1, delay=0)

    assert await agrees(world, Situation(nodes, [job], set(), set(), False)) == set()
    assert await agrees(world, Situation([able, replace(nodes[1], slots=2)], [job], set(), set(), False)) == {0}


@pytest.mark.parametrize("delay", [0, DUE], ids=["in the queue", "due"])
async def test_what_is_locked_is_passed_by(world: World, delay: int) -> None:
    able = Node(queues=None, kinds=KINDS, labels=(), slots=1, running=0, limit=None, fate="idle")
    jobs = [Waiting(queue="mail", kind=kind, priority=0, count=1, delay=delay) for kind in KINDS]

    assert await agrees(world, Situation([able], jobs, set(), set(), True)) == {1}
    assert await agrees(world, Situation([able], jobs, set(), set(), False)) == {0}


def test_the_situations_differ() -> None:
    every = [situation(f"{seed}.{number}") for seed in range(8) for number in range(12)]

    assert {node.fate for each in every for node in each.nodes} == {"idle", "draining", "silent", "offline"}
    assert {job.delay for each in every for job in each.jobs} == {0, DUE, 3600}
    assert {job.queue for each in every for job in each.jobs} == set(QUEUES)
    assert {each.locked for each in every} == {True, False}
    assert {len(each.nodes) for each in every} == {0, 1, 2}
