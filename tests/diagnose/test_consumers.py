"""Why a consumer does not move: each gate, in a real situation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from howdah import Backoff, ConfigError, Howdah
from howdah.diagnose.finding import Gate
from howdah.node.registry import node_name
from howdah.postgres.database import Database
from kit.consumers import following, mortal
from kit.node import eventually, node

pytestmark = pytest.mark.anyio
PLACED = {"type": "Placed", "data": {}}
TWO = Backoff(first=3600, cap=3600, jitter=0)


@pytest.fixture
async def app(app: Howdah) -> AsyncIterator[Howdah]:
    yield app
    await app.close()


async def ask(app: Howdah, name: str = "Mail") -> dict[str, Gate]:
    gates = await app.why.consumer(name)
    assert [gate.open for gate in gates] == sorted(gate.open for gate in gates)
    return {gate.name: gate for gate in gates}


async def closed(app: Howdah, name: str = "Mail") -> list[str]:
    return [gate.name for gate in (await ask(app, name)).values() if not gate.open]


async def declare(conn: Any, name: str = "Mail", partitions: int = 1) -> None:
    await conn.execute("select howdah.declare_scope($1, $2, null, null, 0)", name, partitions)


async def refuse(name: str, event: Any, tx: Any) -> None:
    raise ValueError("no\naddress")


async def caught_up(conn: Any) -> None:
    head = "select bool_and(position = (select max(position) from howdah.event)) from howdah.checkpoint"
    await eventually(lambda: conn.fetchval(head))


async def test_one_that_runs_has_every_gate_open(app: Howdah, database: Database, conn: Any) -> None:
    other, _ = following(database.dsn, "Mail")
    async with node(other) as running_node:
        await app.log.append("Order-1", [PLACED, PLACED])
        await caught_up(conn)
        gates = await ask(app)

    name = f"node {running_node.node} ({node_name()})"
    assert all(gate.open for gate in gates.values())
    assert list(gates) == ["pause", "node", "assigned", "halt", "retry", "frontier", "behind"]
    assert gates["node"].fact == f"{name} has this consumer"
    assert gates["assigned"].fact == f"assigned to {name}"
    assert gates["frontier"].fact == "the log can be read up to 2 of 2"
    assert gates["behind"].fact == "it has handled every event that can be read"


async def test_there_is_none_of_this_name(app: Howdah) -> None:
    with pytest.raises(ConfigError, match="there is no consumer 'Mail'; `howdah consumers` lists them"):
        await app.why.consumer("Mail")


async def test_another_version_of_the_schema(app: Howdah, conn: Any) -> None:
    await conn.execute("insert into howdah.migration (number, name, checksum) values (999, 'x', 'x')")

    [gate] = await app.why.consumer("Mail")
    assert (gate.name, gate.open) == ("schema", False)


async def test_no_live_node_has_it_and_nobody_leads(app: Howdah, conn: Any) -> None:
    await declare(conn)
    await app.log.append("Order-1", [PLACED] * 3)

    gates = await ask(app)
    assert await closed(app) == ["node", "assigned"]
    assert gates["node"].fact == "no live node has this consumer"
    assert gates["node"].fix.endswith("or delete it: howdah consumers forget Mail")
    assert gates["assigned"].fact == "assigned to no node; there is no leader"
    assert gates["behind"].fact == "it is up to 3 events behind, and recently handled 0 events a second"


async def test_paused_by_whom_and_since(app: Howdah, database: Database, conn: Any) -> None:
    other, _ = following(database.dsn, "Mail")
    async with node(other):
        await app.log.append("Order-1", PLACED)
        await caught_up(conn)
        await app.log.admin.pause("Mail", "ada")
        gates = await ask(app)

    assert not gates["pause"].open
    assert gates["pause"].fact.startswith("it is paused by ada since 20")
    assert gates["pause"].fix == "howdah consumers resume Mail"


async def test_its_owner_died(app: Howdah, database: Database, conn: Any) -> None:
    other, _ = following(database.dsn, "Mail")
    async with mortal(other) as running_node:
        await app.log.append("Order-1", PLACED)
        await caught_up(conn)
        await running_node.kill()
        await conn.execute("update howdah.node set beat_at = now() - interval '40 seconds'")
        gates = await ask(app)

    assert await closed(app) == ["node", "assigned"]
    owner = f"assigned to node {running_node.node} ({node_name()}), which has sent no heartbeat for 40 s; "
    assert gates["assigned"].fact.startswith(owner)


async def test_all_that_have_it_drain(app: Howdah, conn: Any) -> None:
    await declare(conn)
    await conn.execute("insert into howdah.node (name, state, consumers) values ('web:7', 'draining', '{\"Mail\": 1}')")

    assert (await ask(app))["node"].fact == "all nodes with this consumer are draining: node 1 (web:7)"


async def test_halted_at_a_position_with_its_error(app: Howdah, database: Database, conn: Any) -> None:
    other, _ = following(database.dsn, "Mail", handler=refuse, max_failures=1)
    async with node(other):
        await app.log.append("Order-1", [PLACED, PLACED])
        await eventually(lambda: conn.fetchval("select halted from howdah.checkpoint"))
        gates = await ask(app)

    assert [gate.name for gate in gates.values() if not gate.open] == ["halt"]
    assert gates["halt"].fact.startswith("halted at position 1 by ValueError: no address (1 failure in a row, 20")
    assert gates["halt"].fix == "fix the cause and `howdah consumers resume Mail`, or `howdah consumers skip Mail`"


async def test_waiting_to_try_again(app: Howdah, database: Database, conn: Any) -> None:
    other, _ = following(database.dsn, "Mail", handler=refuse, max_failures=5, retry=TWO)
    async with node(other):
        await app.log.append("Order-1", PLACED)
        await eventually(lambda: conn.fetchval("select failures = 1 from howdah.checkpoint"))
        gates = await ask(app)

    assert [gate.name for gate in gates.values() if not gate.open] == ["retry"]
    message = "waits to retry position 1 after ValueError: no address (1 failure in a row, 20"
    assert gates["retry"].fact.startswith(message)
    assert gates["retry"].fix == "fix the cause, or `howdah consumers skip Mail`"


async def test_events_that_were_set_aside(app: Howdah, database: Database, conn: Any) -> None:
    other, _ = following(database.dsn, "Mail", handler=refuse, max_failures=1, on_failure="park")
    async with node(other):
        await app.log.append("Order-1", [PLACED, PLACED])
        await eventually(lambda: conn.fetchval("select count(*) = 2 from howdah.parked"))
        parked = (await ask(app))["parked"]

    assert parked.open
    assert parked.fact == "it has parked 2 events after failures, and continued"


@pytest.mark.superuser("sees what other roles run")
async def test_the_frontier_is_held_by_an_open_append(
    app: Howdah, database: Database, direct: Database, conn: Any
) -> None:
    other, _ = following(database.dsn, "Mail")
    writer = await asyncpg.connect(direct.dsn, server_settings={"application_name": "psql"})
    async with node(other):
        await app.log.append("Order-1", PLACED)
        await caught_up(conn)
        begun = writer.transaction()
        await begun.start()
        await writer.execute("select howdah.append('Order-2', '[{\"type\": \"Placed\"}]')")
        await app.log.append("Order-3", PLACED)
        gates = await ask(app)
        assert await closed(app) == ["frontier"]
        await begun.rollback()
        await eventually(lambda: conn.fetchval("select position = 3 from howdah.checkpoint"))
        assert await closed(app) == []

    frontier, pid = gates["frontier"], writer.get_server_pid()
    await writer.close()
    assert frontier.fact.startswith(
        f"the log can be read up to 1 of 3: pid {pid} (psql; idle in transaction: select howdah.append("
    )
    assert " has had its transaction open since 20" in frontier.fact
    assert ", its last statement began at 20" in frontier.fact
    assert frontier.fix == f"end that transaction, or select pg_terminate_backend({pid})"


async def test_a_held_frontier_that_it_has_not_reached_is_not_in_its_way(
    app: Howdah, direct: Database, conn: Any
) -> None:
    await declare(conn)
    await app.log.append("Order-1", PLACED)
    writer = await asyncpg.connect(direct.dsn)
    begun = writer.transaction()
    await begun.start()
    await writer.execute("select howdah.append('Order-2', '[{\"type\": \"Placed\"}]')")
    frontier = (await ask(app))["frontier"]
    await begun.rollback()
    await writer.close()

    assert frontier.open
    assert frontier.fact.startswith("the log can be read up to 1 of 2: pid ")


async def test_one_part_of_several_is_named(app: Howdah, conn: Any) -> None:
    await declare(conn, partitions=5)
    await conn.execute(
        "update howdah.checkpoint set halted = true, failures = 2, error_position = 7, error = 'ValueError',"
        " message = 'no' where part = 3"
    )
    gates = await ask(app)

    assert gates["halt"].fact == "partition 3: halted at position 7 by ValueError: no (2 failures in a row)"
    assert gates["assigned"].fact.startswith(
        "partition 0: assigned to no node; partition 1: assigned to no node; partition 2: "
    )
    assert "; and 2 more partitions; there is no leader" in gates["assigned"].fact


async def test_parts_wait_for_each_other_while_their_number_changes(app: Howdah, conn: Any) -> None:
    await declare(conn, partitions=2)
    await app.log.append("Order-1", [PLACED] * 2)
    await conn.execute("update howdah.consumer set upto = 2")
    assert (await ask(app))["reshape"].open
    await conn.execute("update howdah.checkpoint set position = 2 where part = 1")

    reshape = (await ask(app))["reshape"]
    assert not reshape.open
    assert (
        reshape.fact == "the number of its partitions is changing: each stops at position 2, and 1 of 2 have reached it"
    )
