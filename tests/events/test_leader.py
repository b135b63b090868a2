"""One node leads: it says which node consumes what, and when it goes another does."""

from __future__ import annotations

import asyncio

import pytest

from howdah import ConfigError
from howdah.postgres import migrate
from howdah.postgres.database import Database
from kit.consumers import following, held, mortal, owners, registered
from kit.node import consumers_of, eventually, node, quick

pytestmark = pytest.mark.anyio

QUICK = {"rebalance": 0.3, "lease": 1.5}


async def leader(conn, schema="howdah"):
    return await conn.fetchval(f"select node from {schema}.leader where expires_at > clock_timestamp()")


# ---------------------------------------------------------------- who leads


async def test_the_first_node_leads_by_a_row_and_a_second_does_not(app, conn):
    app, _ = following(app.database.dsn, "a")
    async with node(app, **QUICK) as first:
        await eventually(held(conn, first))
        async with node(app, **QUICK) as second:
            await eventually(lambda: registered(conn, 2))
            await asyncio.sleep(3 * QUICK["rebalance"])

            assert await leader(conn) == first.node
            assert (consumers_of(first).leader.leads, consumers_of(second).leader.leads) == (True, False)
            assert (await app.log.admin.status()).leader == first.node
            assert not await advisory_locks(conn)
    assert await leader(conn) is None
    await app.close()


@pytest.mark.parametrize("way", ["lease", "advisory"])
@pytest.mark.parametrize("notify", [True, False])
async def test_a_leader_that_stops_resigns_and_another_leads_at_once(direct, conn, way, notify):
    """Long before its lease is over: the rebalance is short, the time a lease lasts is not."""
    app, seen = following(direct.dsn, "a", "b", "c")
    times = {"rebalance": 0.5, "lease": 60.0, "leader": way, "notify": notify}
    async with node(app, **times) as first:
        await eventually(held(conn, first))
        async with node(app, **times) as second:
            await eventually(held(conn, first, second))
            first.stop()
            await eventually(held(conn, second))

            assert await eventually(lambda: leads(conn, second))
            made = await app.log.append("S-1", {"type": "T"})
            for name in "abc":
                await app.log.wait_for(name, made)
    assert sorted(seen) == [(name, made.position) for name in "abc"]
    await app.close()


@pytest.mark.parametrize("way", ["lease", "advisory"])
async def test_a_leader_without_consumers_of_its_own_hands_over_at_once_as_well(direct, conn, way):
    """It has to ring even though it gives no partition back."""
    app, _ = following(direct.dsn, "a")
    times = {"rebalance": 90.0, "lease": 200.0, "notify": True, "leader": way}
    async with node(app, **times) as first:
        await eventually(held(conn, first))
        async with node(app, **times) as second:
            await eventually(lambda: registered(conn, 2))
            await conn.execute("update howdah.consumer_partition set node = $1, epoch = epoch + 1", second.node)
            first.stop()
            await eventually(lambda: leads(conn, second))


@pytest.mark.parametrize("way", ["lease", "advisory"])
async def test_a_leader_that_dies_is_replaced(direct, conn, way):
    app, _ = following(direct.dsn, "a", "b")
    async with mortal(app, **QUICK, leader=way) as first:
        await eventually(held(conn, first))
        async with node(app, **QUICK, leader=way) as second:
            await eventually(held(conn, first, second))
            await first.kill()
            await consumers_of(first).leader.close()  # the server ends the session of a process that died

            await eventually(held(conn, second))
            assert await leader(conn) == second.node
            assert consumers_of(second).leader.leads
    await app.close()


async def test_a_leader_that_lives_but_leads_no_more_is_replaced(database, conn):
    """Its heart beats on; only its leading has broken off."""
    app, _ = following(database.dsn, "a")
    async with node(app, **QUICK) as first:
        await eventually(held(conn, first))
        [leading] = [task for task in asyncio.all_tasks() if task.get_name() == "howdah leader"]
        leading.cancel()
        async with node(app, **QUICK) as second:
            await eventually(lambda: leads(conn, second))


async def test_a_leader_that_lost_its_row_notices_it(database, conn):
    app, _ = following(database.dsn, "a")
    async with node(app, **QUICK) as first:
        await eventually(held(conn, first))
        async with node(app, **QUICK) as second:
            await eventually(lambda: registered(conn, 2))
            await conn.execute(
                "update howdah.leader set node = $1, expires_at = now() + interval '1 hour'", second.node
            )

            await eventually(
                lambda: is_true(consumers_of(second).leader.leads and not consumers_of(first).leader.leads)
            )


async def test_a_leader_whose_lock_went_with_its_session_does_not_go_on(direct, conn):
    app, _ = following(direct.dsn, "a", "b")
    async with node(app, **QUICK, leader="advisory") as first:
        await eventually(held(conn, first))
        async with node(app, **QUICK, leader="advisory") as second:
            await eventually(held(conn, first, second))
            [lock] = await advisory_locks(conn)
            await conn.execute("select pg_terminate_backend($1)", lock["pid"])

            async def settled():
                locks = await advisory_locks(conn)
                leads = [consumers_of(first).leader.leads, consumers_of(second).leader.leads]
                return len(locks) == 1 and locks[0]["pid"] != lock["pid"] and sorted(leads) == [False, True]

            await eventually(settled)


async def test_two_schemas_in_one_database_have_a_leader_each(direct, conn):
    await migrate.migrate(Database(direct.dsn, schema="other"))
    here, seen_here = following(direct.dsn, "a")
    there, seen_there = following(direct.dsn, "a", schema="other")
    async with node(here, **QUICK, leader="advisory") as one, node(there, **QUICK, leader="advisory") as two:
        await eventually(held(conn, one))
        await eventually(held(conn, two, schema="other"))

        assert consumers_of(one).leader.leads
        assert consumers_of(two).leader.leads
        assert len({(lock["classid"], lock["objid"]) for lock in await advisory_locks(conn)}) == 2
        made = await there.log.append("S-1", {"type": "T"})
        await there.log.wait_for("a", made)
    assert (seen_here, seen_there) == ([], [("a", made.position)])
    await here.close()
    await there.close()


async def test_to_lead_by_a_lock_behind_a_pooler_is_refused(database, pooler):
    """A transaction pooler would hand the lock to somebody else."""
    app, _ = following(database.dsn, "a")
    running_node = app.node(quick(leader="advisory"))
    if not pooler:
        running_node.registry.database.pooled = True  # as it would find out

    with pytest.raises(ConfigError, match="needs a direct connection"):
        await running_node.run()


# ---------------------------------------------------------------- who has what


async def test_a_node_that_joins_takes_its_part_and_one_too_many_stands_by(database, conn):
    app, seen = following(database.dsn, "a", "b")
    async with node(app, **QUICK) as first:
        await eventually(held(conn, first))
        async with node(app, **QUICK) as second, node(app, **QUICK) as third:
            await eventually(lambda: registered(conn, 3))
            await eventually(lambda: spread(conn, 2))
            nodes = (first, second, third)
            await eventually(lambda: is_true(sorted(len(consumers_of(each).runners) for each in nodes) == [0, 1, 1]))
            [standby] = [each for each in nodes if not consumers_of(each).runners]
            busy = [each for each in nodes if each is not standby]
            before = await owners(conn)

            busy[1].stop()
            await eventually(held(conn, busy[0], standby))
            assert len((await owners(conn)).items() - before.items()) == 1
            made = await app.log.append("S-1", {"type": "T"})
            for name in "ab":
                await app.log.wait_for(name, made)
    assert sorted(seen) == [("a", made.position), ("b", made.position)]
    await app.close()


async def test_a_consumer_goes_only_to_a_node_that_has_it(database, conn):
    left, seen_left = following(database.dsn, "a", "b", "shared")
    right, seen_right = following(database.dsn, "c", "shared")
    async with node(left, **QUICK) as one:
        await eventually(held(conn, one))
        async with node(right, **QUICK) as two:
            await eventually(lambda: is_owner(conn, "c", two))
            await eventually(lambda: is_owner(conn, "shared", two))
            made = await left.log.append("S-1", {"type": "T"})
            for name in ("a", "b", "c", "shared"):
                await left.log.wait_for(name, made)
            assert {name for name, _ in seen_left} == {"a", "b"}
            assert {name for name, _ in seen_right} == {"c", "shared"}

            two.stop()
            await eventually(lambda: is_owner(conn, "shared", one))
            states = {row.consumer: row.state for row in await left.log.admin.consumers()}
            assert states == {"a": "running", "b": "running", "c": "unassigned", "shared": "running"}
    await left.close()


async def test_moving_one_consumer_in_the_middle_of_its_batch_holds_nobody_up(database, conn):
    """The batch goes on for as long as it likes; the others, and their moves, do not wait for it."""
    started, finish = asyncio.Event(), asyncio.Event()

    async def handler(name, event, tx):
        await tx.execute("insert into mark values ($1, $2)", name, event.position)
        if name == "slow" and not started.is_set():
            started.set()
            await finish.wait()

    await conn.execute("create table mark (consumer text, position bigint)")
    app, _ = following(database.dsn, "quick", "slow", handler=handler)
    other, _ = following(database.dsn, "slow", handler=handler)  # so that no other consumer can be the one that moves
    async with node(app, **QUICK) as first:
        await eventually(held(conn, first))
        await app.log.append("S-1", {"type": "T"})
        await asyncio.wait_for(started.wait(), 30)
        async with node(other, **QUICK) as second:
            await eventually(lambda: is_owner(conn, "slow", second))
            made = await app.log.append("S-1", {"type": "T"})
            await app.log.wait_for("quick", made, timeout=30)
            await app.log.wait_for("slow", made, timeout=30)  # by its new owner

            two = await conn.fetch("select consumer, position from mark order by 1, 2")
            finish.set()
            await eventually(lambda: no_batch_is_open(conn))
    assert [tuple(row) for row in two] == [(name, n) for name in ("quick", "slow") for n in (1, made.position)]
    assert await conn.fetch("select consumer, position from mark order by 1, 2") == two
    await app.close()
    await other.close()


async def test_a_node_that_cannot_reach_the_leader_row_keeps_what_it_has(database, conn):
    """Nobody leads for a while: those who consume go on."""
    app, seen = following(database.dsn, "a")
    async with node(app, **QUICK) as first:
        await eventually(held(conn, first))
        async with conn.transaction():
            await conn.execute("lock table howdah.leader in access exclusive mode")
            made = await app.log.append("S-1", {"type": "T"})
            await app.log.wait_for("a", made, timeout=30)
    assert seen == [("a", made.position)]
    await app.close()


# ---------------------------------------------------------------- what is looked at


async def spread(conn, nodes):
    return len({each for each in (await owners(conn)).values() if each is not None}) == nodes


async def leads(conn, running_node):
    return await leader(conn) == running_node.node and consumers_of(running_node).leader.leads


async def is_owner(conn, name, running_node):
    return (await owners(conn)).get((name, 0)) == running_node.node != 0


async def no_batch_is_open(conn):
    return not await conn.fetchval(
        """select count(*) from pg_stat_activity where application_name = 'howdah pool' and xact_start is not null
        and datname = current_database()"""
    )


async def is_true(value):
    return value


async def advisory_locks(conn):
    """Locks that sessions hold, not transactions."""
    return await conn.fetch(
        """select l.pid, l.classid, l.objid from pg_locks l join pg_stat_activity a using (pid)
        where l.locktype = 'advisory' and a.application_name = 'howdah leader' and l.granted
          and l.database = (select oid from pg_database where datname = current_database())"""
    )


async def test_a_node_whose_row_was_pruned_consumes_again_once_it_is_back(database, conn):
    """It was frozen until it counted as offline. Its heartbeat makes the row anew, without what it can consume."""
    app, seen = following(database.dsn, "a", "b")
    async with node(app, **QUICK) as only:
        await eventually(held(conn, only))
        async with conn.transaction():
            await conn.execute("create temp table pruned as select * from howdah.node")
            await conn.execute("delete from howdah.node")
        await conn.execute(
            "update howdah.consumer_partition set node = null, epoch = epoch + 1"
        )  # as another leader would
        await conn.execute("update pruned set consumers = null, declared = null, beat_at = clock_timestamp()")
        await conn.execute(
            "insert into howdah.node overriding system value select * from pruned on conflict (id) do nothing"
        )

        await eventually(held(conn, only))
        assert await eventually(lambda: leads(conn, only))
        made = await app.log.append("S-1", {"type": "T"})
        for name in "ab":
            await app.log.wait_for(name, made)
    assert sorted(seen) == [("a", made.position), ("b", made.position)]
    await app.close()
