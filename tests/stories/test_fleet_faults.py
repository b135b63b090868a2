"""Workers over HTTP while answers are lost, requests come twice, processes die or freeze and the network is gone.

A worker without a database has no transaction to put its effects into, so what is promised is this: no job is lost, its
outcome is recorded once, and it runs again only after a lease was lost. HOWDAH_CHAOS_SECONDS says for how long the
chaos lasts; HOWDAH_CHAOS_SEED repeats a run, as far as the machine lets it. HOWDAH_CUT_SECONDS says for how long the
network is gone, where it is gone for everybody.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from functools import partial

import pytest

from howdah.control_plane.tokens import Tokens
from howdah.postgres.database import Session
from kit.http_proxy import Proxy
from kit.node import eventually
from kit.remote_processes import HEARTBEAT, LEASE, RemoteProcesses, app, count, freeze, mark, marks, reports, stumble
from kit.roles import fleet as fleet_role
from kit.roles import owner

pytestmark = [pytest.mark.anyio, pytest.mark.stories]

SECONDS = float(os.environ.get("HOWDAH_CHAOS_SECONDS", "15"))
SEED = int(os.environ.get("HOWDAH_CHAOS_SEED", random.randrange(10_000)))
ROUND = LEASE + 1.5
"""Seconds a fault lasts: longer than the lease, so that it is lost."""
SOON = LEASE + 5
"""Seconds after which nothing may be stuck."""
CUT = float(os.environ.get("HOWDAH_CUT_SECONDS", 2 * LEASE))
MOST_WAITING = 120
LEFT = """select (select count(*) from howdah.lease) as lease, (select count(*) from howdah.gone) as gone,
    (select count(*) from howdah.ready) as ready, (select count(*) from howdah.later) as later"""


class World:
    """A control plane, its workers, the wires between them, and what was seen on these."""

    def __init__(self, fleet, conn, path):
        self.fleet = fleet
        self.conn = conn
        self.path = path
        self.reported = []
        self.plane = None
        self.back = None
        """When the control plane was last seen to come back; none while it is away."""
        self.agents = []
        self.wires = []

    async def wire(self, stack):
        wire = await stack.enter_async_context(Proxy(self.fleet.port, watch=self._watch))
        self.wires.append(wire)
        return wire

    def _watch(self, passed):
        if passed.path.endswith("/ack") and passed.status == 200:
            self.reported += reports(passed.path, passed.body, passed.answer)

    @property
    def refused(self):
        return [each for each in self.reported if each.accepted is None]

    def statuses(self, verb):
        return {
            status: n for wire in self.wires for (passed_verb, status), n in wire.passed.items() if passed_verb == verb
        }

    async def begun(self, n=1):
        return sum(each.what == "begin" for each in marks(self.path)) >= n

    async def done(self, jobs):
        return await self.conn.fetchval("select count(*) from howdah.done") >= jobs

    async def faults(self):
        """What must never be, in words."""
        found = []
        outcomes = {row["id"]: row for row in await self.conn.fetch("select id, attempt, node, state from howdah.done")}
        history = {
            (row["id"], row["attempt"]) for row in await self.conn.fetch("select id, attempt from howdah.attempt")
        }
        runs = Counter((each.job, each.attempt) for each in marks(self.path) if each.what == "begin")
        ends = {(each.job, each.attempt) for each in marks(self.path) if each.what == "end"}
        accepted = defaultdict(set)
        for each in self.reported:
            if each.accepted == "ok":
                accepted[each.id].add((each.token, each.node))
        for (id,) in await self.conn.fetch("select id from howdah.job"):
            row = outcomes.get(id)
            if row is None or row["state"] != b"d":
                found.append(f"job {id} was lost")
                continue
            if (id, row["attempt"]) not in ends:
                found.append(f"job {id} is done and was not")
            if len(accepted[id]) > 1:
                found.append(f"job {id} was accepted under two leases")
            if accepted[id] and row["node"] not in {node for _, node in accepted[id]}:
                found.append(f"job {id} was accepted from one worker and recorded for another")
        for (id, attempt), times in runs.items():
            if times > 1:
                found.append(f"job {id} ran {times} times in one attempt")
            if id in outcomes and attempt != outcomes[id]["attempt"] and (id, attempt) not in history:
                found.append(f"job {id} ran again although no lease was lost")
        left = await self.conn.fetchrow(LEFT)
        return found + [f"{rows} rows are left in {table}" for table, rows in left.items() if rows]


@pytest.fixture
async def world(database, conn, tmp_path):
    app.connect_to(database.dsn)
    session = Session(owner(database), "test")
    token, _ = await Tokens(owner(database), session).create("test", ["work"])
    await session.close()
    with RemoteProcesses(fleet_role(database).dsn, token, tmp_path / "marks") as fleet:
        yield World(fleet, conn, tmp_path / "marks")
    await app.close()


async def start(world, stack, agents, **switches):
    world.plane = world.fleet.plane(**switches)
    for _ in range(agents):
        await world.wire(stack)
    await world.fleet.ready()


async def enqueue(jobs, *, longest=0.05, first=0):
    kinds = (mark, count, stumble)
    pauses = [random.uniform(0, longest) for _ in range(jobs)]
    await app.enqueue_many(kinds[n % 3].job(first + n, pauses[n]) for n in range(jobs))


# ---------------------------------------------------------------- one thing goes wrong


async def test_answers_that_are_lost_after_the_commit(world):
    async with AsyncExitStack() as stack:
        await start(world, stack, 2)
        rules = [
            wire.add("lose", f"/{verb}$", times=times)
            for wire in world.wires
            for verb, times in (("register", 1), ("claim", 3), ("ack", 3), ("heartbeat", 2))
        ]
        await enqueue(200)
        for wire in world.wires:
            world.fleet.agent(wire.url)
        await eventually(lambda: world.done(200), 60)
        await settle(world)
        await eventually(lambda: all_hit(rules), SOON)

    assert await world.faults() == []
    assert await lost(world) == 0, (
        "what was given to a worker that did not hear of it went back before its lease was over"
    )


async def test_requests_that_come_twice(world):
    async with AsyncExitStack() as stack:
        await start(world, stack, 2)
        rules = [
            wire.add("twice", f"/{verb}$")
            for wire in world.wires
            for verb in ("register", "ack", "heartbeat", "release")
        ]
        await enqueue(200)
        for wire in world.wires:
            world.fleet.agent(wire.url)
        await eventually(lambda: world.done(200), 60)
        await eventually(lambda: reported_twice(world), SOON)
        await settle(world)

    assert await world.faults() == []
    assert all(rule.hits for rule in rules if "release" not in rule.path)
    assert world.refused == [], "a report said again is answered the same"


@pytest.mark.parametrize("fence", [True, False], ids=["fenced", "unfenced"])
async def test_a_worker_frozen_past_its_lease_is_refused_when_it_wakes_up(world, fence):
    """Without the fence, the negative control, the same checker finds what must never be."""
    async with AsyncExitStack() as stack:
        await start(world, stack, 2, UNFENCED="" if fence else "1")
        zombie = world.fleet.agent(world.wires[0].url, HEEDLESS="1")
        await freeze.enqueue(1)
        await eventually(lambda: stopped(zombie.pid), 20)
        world.fleet.agent(world.wires[1].url)
        await eventually(lambda: world.done(1), 20 + SOON)
        await eventually(lambda: reported(world, 1), 10)
        zombie.send_signal(signal.SIGCONT)
        await eventually(lambda: reported(world, 2), 10)
        if fence:
            await settle(world)

    faults = await world.faults()
    assert [each.what for each in marks(world.path)] == ["begin", "begin", "end", "end"]
    if fence:
        assert faults == []
        assert len(world.refused) == 1
    else:
        assert any("accepted under two leases" in fault for fault in faults)


async def test_a_control_plane_that_is_killed_and_comes_back(world):
    async with AsyncExitStack() as stack:
        await start(world, stack, 2)
        for wire in world.wires:
            world.fleet.agent(wire.url)
        await enqueue(600, longest=0.2)
        for begun in (200, 400):
            await eventually(partial(world.begun, begun), 20)
            world.fleet.kill(world.plane)
            await asyncio.sleep(0.5)
            world.plane = world.fleet.plane()
            await world.fleet.ready()
        await eventually(lambda: world.done(600), 60)
        await settle(world)

    assert await world.faults() == []


@pytest.mark.timeout(int(CUT) + 120)
@pytest.mark.parametrize("how", ["cut", "hole"])
async def test_the_network_is_gone_for_everybody_and_comes_back(world, how):
    """Refused or, which is worse, without an answer: work that is no longer theirs ends, and afterwards all goes on."""
    async with AsyncExitStack() as stack:
        await start(world, stack, 2)
        for wire in world.wires:
            world.fleet.agent(wire.url)
        await eventually(lambda: states(world, "idle", "idle"), 20)
        await enqueue(60, longest=0.3)
        await app.enqueue_many(mark.job(100 + n, 2 * LEASE) for n in range(4))
        await eventually(lambda: began(world, 100, 101, 102, 103), 20)
        for wire in world.wires:
            getattr(wire, how)()
        gone = time.monotonic()
        await eventually(lambda: states(world, "offline", "offline"), SOON)
        await asyncio.sleep(max(0.0, gone + CUT - time.monotonic()))
        await enqueue(60, first=200)
        healed = time.monotonic()
        for wire in world.wires:
            wire.heal()
        await eventually(lambda: world.done(124), 60)
        took = time.monotonic() - healed
        await settle(world)

    seen = marks(world.path)
    begun = [each.at for each in seen if each.what == "begin"]
    again = min(at for at in begun if at > healed) - healed
    print(f"\n{how} for {CUT:g} s: {len(begun)} runs of 124 jobs, {await lost(world)} lost")
    print(f"{len(world.refused)} stale reports refused; work again after {again:.1f} s, all done after {took:.1f} s")
    assert await world.faults() == []
    assert [each for each in seen if gone + LEASE + 2 < each.at <= healed] == [], "nobody works on what is not theirs"
    assert await lost(world) >= 4
    assert again < SOON
    assert await world.conn.fetchval("select count(*) from howdah.node") == 2, "they are who they were"


async def states(world, *expected):
    rows = await world.conn.fetch("select state from howdah.node order by state")
    return [row["state"] for row in rows] == list(expected)


async def began(world, *numbers):
    return {each.n for each in marks(world.path)} >= set(numbers)


async def settle(world):
    """Wait until nothing is on its way; what is left after that is a fault."""
    until = time.monotonic() + SOON
    while any(await world.conn.fetchrow(LEFT)) and time.monotonic() < until:
        await asyncio.sleep(0.05)


async def all_hit(rules):
    return all(rule.hits == rule.times for rule in rules)


async def lost(world):
    return await world.conn.fetchval("select count(*) from howdah.attempt where outcome = 'lost'")


async def stopped(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "T"


async def reported_twice(world):
    return set(Counter((each.token, each.id) for each in world.reported).values()) == {2}


async def reported(world, n):
    return len({(each.token, each.id) for each in world.reported}) >= n


# ---------------------------------------------------------------- everything goes wrong


@pytest.mark.timeout(int(SECONDS) + 240)
async def test_nothing_is_lost_and_nothing_doubled_whatever_goes_wrong(world):
    chance = random.Random(SEED)
    struck = Counter()
    jobs = 0
    async with AsyncExitStack() as stack:
        await start(world, stack, 3)
        # the first does not hear that it lost its leases: what it says late must be refused
        world.agents = [world.fleet.agent(wire.url, HEEDLESS="" if n else "1") for n, wire in enumerate(world.wires)]
        feeding = asyncio.create_task(feed(world))
        await eventually(lambda: world.begun(), 20)
        until, deck = time.monotonic() + SECONDS, [*chance.sample(list(STRIKES)[1:], len(STRIKES) - 1), "frozen"]
        # it lasts until every fault was injected and a report came too late: a slow machine needs longer for that
        while time.monotonic() < until or (
            (not world.refused or set(struck) != set(STRIKES)) and time.monotonic() < until + 60
        ):
            if len(deck) < 3:
                deck = chance.sample(list(STRIKES), len(STRIKES))
            strikes = [deck.pop() for _ in range(3)]
            struck.update(strikes)
            await asyncio.gather(*(STRIKES[strike](world, n) for n, strike in enumerate(strikes)), replace(world))
            for wire in world.wires:
                wire.heal()
        feeding.cancel()
        jobs = await feeding
        healed = time.monotonic()
        await eventually(lambda: world.done(jobs), 60)
        took = time.monotonic() - healed
        await settle(world)
        calm = await without_faults(world)
        await settle(world)

    runs = Counter(each.job for each in marks(world.path) if each.what == "begin")
    print(f"\nseed {SEED}: {jobs} jobs, {dict(struck)}; {sum(runs.values())} runs, {await lost(world)} lost")
    print(f"{len(world.refused)} stale reports refused; all done {took:.1f} s after the last fault")
    print(f"{MOST_WAITING} jobs without faults take {calm:.1f} s")
    assert await world.faults() == []
    assert set(struck) == set(STRIKES)
    assert await lost(world) > 0, "no fault hit a job"
    assert world.refused, "no stale report was made"
    assert took < SOON + 2 * calm
    assert set(world.statuses("ack")) <= {200, 401, 404, 503}


async def without_faults(world):
    """Seconds as many jobs as may be left over take by themselves, on this machine, as busy as it is."""
    began = time.monotonic()
    await enqueue(MOST_WAITING, longest=0.1, first=1_000_000)
    jobs = await world.conn.fetchval("select count(*) from howdah.job")
    await eventually(lambda: world.done(jobs), 60)
    return time.monotonic() - began


async def feed(world):
    """Enqueue some jobs again and again; when cancelled, says how many there are.

    No more than are soon worked on: a slow machine must not have a heap of them left when the faults are over.
    """
    jobs = 0
    try:
        while True:
            if jobs - len({each.n for each in marks(world.path) if each.what == "end"}) < MOST_WAITING:
                await enqueue(6, longest=0.1, first=jobs)
                jobs += 6
            await asyncio.sleep(0.2)
    except asyncio.CancelledError:
        return jobs


async def replace(world):
    """The control plane is killed, and another one comes."""
    world.back = None
    await asyncio.sleep(random.uniform(0.2, 1.0))
    world.fleet.kill(world.plane)
    await asyncio.sleep(0.3)
    world.plane = world.fleet.plane()
    await world.fleet.ready()
    world.back = time.monotonic()


async def last(world):
    """For as long as a fault lasts, in which the control plane is there: leases are lost to somebody."""
    await asyncio.sleep(ROUND)
    while world.back is None or time.monotonic() < world.back + ROUND:
        await asyncio.sleep(0.05)


async def freeze_it(world, n):
    """In the middle of a job, so that there is something to say late."""
    agent = world.agents[n]
    until = time.monotonic() + ROUND
    while not in_hand(world, agent.pid) and time.monotonic() < until:
        await asyncio.sleep(0.01)
    agent.send_signal(signal.SIGSTOP)
    await last(world)
    agent.send_signal(signal.SIGCONT)


def in_hand(world, pid):
    """Whether a process has begun more than it has ended."""
    seen = Counter(each.what for each in marks(world.path) if each.pid == pid)
    return seen["begin"] > seen["end"]


async def cut_it_off(world, n):
    world.wires[n].cut()
    await last(world)


async def into_a_hole(world, n):
    world.wires[n].hole()
    await last(world)


def breaking(deed, path, seconds=0.0, times=5):
    async def strike(world, n):
        world.wires[n].add(deed, path, seconds=seconds, times=times)
        await last(world)

    return strike


STRIKES = {
    "frozen": freeze_it,
    "cut off": cut_it_off,
    "black hole": into_a_hole,
    "slow": breaking("delay", "/workers", HEARTBEAT, times=1000),
    "claims lost": breaking("lose", "/claim$"),
    "reports lost": breaking("lose", "/ack$"),
    "heartbeats lost": breaking("lose", "/heartbeat$"),
    "reports twice": breaking("twice", "/ack$", times=1000),
    "reports swallowed": breaking("swallow", "/ack$", times=1),
}
