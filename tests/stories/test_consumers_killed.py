"""Consumers on nodes that are killed and frozen: every event is applied once, in order, and somebody takes over soon.

HOWDAH_CHAOS_SECONDS says for how long; HOWDAH_CHAOS_SEED repeats a run, as far as the machine lets it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import statistics
from collections import defaultdict

import pytest

from kit.consumer_processes import LEASE, REBALANCE, TABLES, ConsumerProcesses, app
from kit.node import eventually
from kit.read_models import append, faults

pytestmark = [pytest.mark.anyio, pytest.mark.stories]

SECONDS = float(os.environ.get("HOWDAH_CHAOS_SECONDS", "20"))
SEED = int(os.environ.get("HOWDAH_CHAOS_SEED", random.randrange(10_000)))


@pytest.fixture
async def world(database, conn):
    app.connect_to(database.dsn)
    await conn.execute(TABLES)
    yield database.dsn
    await app.close()


@pytest.mark.timeout(int(SECONDS) + 180)
async def test_read_models_are_the_fold_of_the_log_whatever_happens_to_the_nodes(world, direct, conn):
    with ConsumerProcesses(world) as processes:
        strikes = await chaos(processes, direct, conn, seconds=SECONDS, seed=SEED)
        await eventually(lambda: at_the_head(conn), 90)

    found = await faults(conn)
    events = await conn.fetchval("select count(*) from howdah.event")
    print(f"\nseed {SEED}: {events} events, {dict(strikes)}")
    for how, times in (await takeovers(conn)).items():
        middle, longest = statistics.median(times), max(times)
        print(f"take-over after {how}: {len(times)} shares, median {middle:.2f} s, longest {longest:.2f} s")
    assert found == []
    assert set(strikes) == {"killed", "froze", "stopped"}
    assert await conn.fetchval("select count(distinct pid) from seen") > 3


@pytest.mark.timeout(180)
async def test_without_the_fence_the_same_chaos_applies_events_twice(world, direct, conn):
    """The negative control: what is checked above can fail."""
    with ConsumerProcesses(world, FENCE="off", IDLE="100", PAUSE="0.3") as processes:
        await chaos(processes, direct, conn, seconds=10, seed=SEED, hows=("froze", "stopped"))
        await eventually(lambda: at_the_head(conn), 60)

    assert any("more than once" in each for each in await faults(conn))


# ---------------------------------------------------------------- one node, frozen in the middle of a batch


@pytest.mark.parametrize(
    ("consumer", "idle", "fence", "times"),
    [
        ("closings", "0.8", "on", 1),
        ("closings", "100", "on", 1),  # without the server's guard: the fence alone must hold
        ("closings", "100", "off", 2),  # the negative control
        ("deposits", "0.8", "on", 1),  # both lock one row: the server's guard must free it
    ],
)
async def test_a_batch_of_a_frozen_node_is_refused_once_another_took_over(world, conn, consumer, idle, fence, times):
    with ConsumerProcesses(world, HAS=consumer, IDLE=idle, FENCE=fence) as processes:
        frozen = processes.start(FREEZE="yes")
        await eventually(lambda: owner(conn, consumer), 60)
        event = {"type": "Closed" if consumer == "closings" else "Deposited", "data": {"amount": 5, "freeze": True}}
        made = await app.log.append("Order-1", event)
        await eventually(lambda: is_frozen(frozen), 60)
        processes.start()
        await app.log.wait_for(consumer, made, timeout=60)
        [before] = await conn.fetch("select * from howdah.checkpoint")
        os.kill(frozen.pid, signal.SIGCONT)
        later = await app.log.append("Order-1", {**event, "data": {"amount": 7}})
        await app.log.wait_for(consumer, later, timeout=60)
        await eventually(lambda: answered(conn, times), 60)

    seen = await conn.fetch("select position from seen order by position")
    assert [row["position"] for row in seen] == [made.position] * times + [later.position]
    assert before["handled"] == 1
    if consumer == "deposits":
        assert tuple(await conn.fetchrow("select times, amount from deposit")) == (2, 12)


async def test_a_node_frozen_while_it_parks_an_event_holds_nobody_up(world, conn):
    with ConsumerProcesses(world, HAS="picky") as processes:
        frozen = processes.start(FREEZE="yes")
        await eventually(lambda: owner(conn, "picky"), 60)
        bad = await app.log.append("Order-1", {"type": "Placed", "data": {"freeze": True}})
        await eventually(lambda: is_frozen(frozen), 60)
        processes.start()
        good = await app.log.append("Order-1", {"type": "Placed"})
        await app.log.wait_for("picky", good, timeout=60)
        os.kill(frozen.pid, signal.SIGCONT)
        later = await app.log.append("Order-1", {"type": "Placed"})
        await app.log.wait_for("picky", later, timeout=60)

    assert [row.position for row in await app.log.admin.parked("picky")] == [bad.position]
    assert [row["position"] for row in await conn.fetch("select position from seen")] == [good.position, later.position]


@pytest.mark.parametrize("way", ["lease", "advisory"])
async def test_a_frozen_leader_is_replaced(world, conn, way):
    with ConsumerProcesses(world, HAS="closings,balances", LEADER=way) as processes:
        first = processes.start()
        await eventually(lambda: owner(conn, "closings"), 60)
        second = processes.start()
        await eventually(lambda: spread(conn, 2), 60)
        os.kill(first.pid, signal.SIGSTOP)
        await eventually(lambda: leads(conn, second), 60)
        await eventually(lambda: spread(conn, 1), 60)
        os.kill(first.pid, signal.SIGCONT)
        await eventually(lambda: spread(conn, 2), 60)
        await asyncio.sleep(4 * REBALANCE)
        assert await leads(conn, second)
        assert await spread(conn, 2)


async def leads(conn, process):
    return await conn.fetchval(
        """select n.name = $1 from howdah.leader l join howdah.node n on n.id = l.node
        where l.expires_at > clock_timestamp()""",
        f"{socket.gethostname()}:{process.pid}",
    )


async def answered(conn, times):
    """The frozen node has got its answer: its batch is in, or the server or the fence turned it away."""
    return await conn.fetchval(
        """select (select count(*) from seen) = $1 and not exists (
            select from pg_stat_activity
            where xact_start is not null and datname = current_database() and application_name = 'howdah pool')""",
        times + 1,
    )


async def test_the_consumers_of_a_killed_node_go_on_elsewhere(world, conn):
    with ConsumerProcesses(world) as processes:
        first, second = processes.start(), processes.start()
        await eventually(lambda: spread(conn, 2), 60)
        leader = await conn.fetchval("select n.name from howdah.leader l join howdah.node n on n.id = l.node")
        for victim in sorted((first, second), key=lambda node: not leader.endswith(f":{node.pid}")):
            processes.kill(victim)  # the leader first, then whoever leads after it
            processes.start()
            made = await app.log.append("Order-1", [{"type": "Closed"}, {"type": "Deposited", "data": {"amount": 1}}])
            for name in app.consumers:
                await app.log.wait_for(name, made, timeout=60)
        await eventually(lambda: at_the_head(conn), 60)

    assert (
        await conn.fetchval("select count(*) from (select from seen group by consumer, position having count(*) > 1)")
        == 0
    )
    assert await conn.fetchval("select times from deposit") == 2


# ---------------------------------------------------------------- the chaos


async def chaos(processes, direct, conn, *, seconds, seed, hows=("killed", "froze", "stopped")):
    """Append, and let bad things happen to three nodes; returns what happened how often."""
    chance, loop, stop = random.Random(seed), asyncio.get_running_loop(), asyncio.Event()
    await conn.execute(
        "create table strike (at timestamptz default clock_timestamp(), pid int, how text, consumer text, part int)"
    )
    for _ in range(3):
        processes.start()
    connections = [await direct.connect("appender") for _ in range(4)]
    load = [
        asyncio.create_task(append(app, connection, stop, seed=seed + index, rest=0.02))
        for index, connection in enumerate(connections)
    ]
    beside, counts = set(), defaultdict(int)
    await eventually(lambda: spread(conn, 3), 60)
    until = loop.time() + seconds
    while loop.time() < until:
        awake = [node for node in processes.nodes if not await is_frozen(node)]
        if len(awake) >= 2:
            # each in turn at first, so that even a short run has seen them all
            how = hows[sum(counts.values())] if sum(counts.values()) < len(hows) else chance.choice(hows)
            node = chance.choice(awake)
            await struck(conn, node, how)
            counts[how] += 1
            beside.add(asyncio.create_task(strike(processes, node, how, chance.uniform(0.2, 2.5 * LEASE))))
        await asyncio.sleep(chance.uniform(0.5, 2.0))
    await asyncio.gather(*beside)
    stop.set()
    await asyncio.gather(*load)
    for connection in connections:
        await connection.close()
    return counts


async def strike(processes, node, how, seconds):
    if how == "froze":
        node.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        if node.poll() is None:
            node.send_signal(signal.SIGCONT)
        return
    if how == "killed":
        processes.kill(node)
    else:
        processes.nodes.remove(node)
        node.send_signal(signal.SIGTERM)
    processes.start()
    try:
        await asyncio.to_thread(node.wait, 30)
    finally:
        node.kill()


async def struck(conn, node, how):
    await conn.execute(
        """insert into strike (pid, how, consumer, part)
        select $1, $2, s.consumer, s.part
        from howdah.consumer_partition s join howdah.node n on n.id = s.node
        where n.name = $3""",
        node.pid,
        how,
        f"{socket.gethostname()}:{node.pid}",
    )


async def takeovers(conn):
    """Seconds from a strike to the first event that another node applied, by what happened."""
    await conn.execute("create index on seen (consumer, at)")
    rows = await conn.fetch(
        """select k.how, extract(epoch from first.others - k.at)::float8 as seconds
        from strike k
        join howdah.consumer c on c.name = k.consumer
        cross join lateral (
            select min(s.at) filter (where s.pid <> k.pid) as others, min(s.at) filter (where s.pid = k.pid) as own
            from seen s join howdah.event e using (position)
            where s.consumer = k.consumer and s.at between k.at and k.at + interval '1 minute'
              and howdah.partition_of(e.stream_type, e.stream_id, c.partitions) = k.part) first
        -- one that was frozen for a moment only goes on by itself
        where first.others is not null and (k.how <> 'froze' or first.own is null or first.own > first.others)"""
    )
    times = defaultdict(list)
    for row in rows:
        times[row["how"]].append(row["seconds"])
    return times


async def at_the_head(conn):
    return await conn.fetchval(
        """select (select min(position) from howdah.checkpoint) >= (select safe from howdah.frontier())
        and not exists (select from howdah.jobs where kind = 'letter' and state <> 'done')"""
    )


async def spread(conn, nodes):
    """Every partition has a node, and there are so many of them."""
    return await conn.fetchval(
        "select count(*) = count(node) and count(distinct node) = $1 from howdah.consumer_partition", nodes
    )


async def owner(conn, consumer):
    return await conn.fetchval("select node from howdah.consumer_partition where consumer = $1", consumer)


async def is_frozen(process):
    try:
        with open(f"/proc/{process.pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "T"
    except FileNotFoundError:
        return False
