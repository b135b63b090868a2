"""The doctor looks at the event log: each illness is found, and its fix is one line that works."""

from __future__ import annotations

import re
from typing import Any

import pytest

from howdah import Backoff, Howdah
from howdah.diagnose.doctor import Doctor
from howdah.diagnose.doctor import events as doctor_log
from howdah.diagnose.finding import Finding
from howdah.postgres.database import Database
from kit.node import eventually, node

pytestmark = pytest.mark.anyio

PLACED = {"type": "Placed", "data": {}}


async def examine(database: Database, name: str) -> list[Finding]:
    return [each for each in await Doctor(database).examine() if each.name == name]


async def declare(conn: Any, *names: str) -> None:
    for name in names:
        await conn.execute("select howdah.declare_scope($1, 1, null, null, 0)", name)


async def test_a_log_with_live_consumers_is_well(app: Howdah, database: Database, conn: Any) -> None:
    @app.consumer("Mail")
    async def mail(event: Any) -> None: ...

    async with node(app) as running_node:
        await app.log.append("Order-1", PLACED)
        await eventually(lambda: conn.fetchval("select position = 1 from howdah.checkpoint"))
        found = {each.name: each for each in await Doctor(database).examine()}

    assert {found[name].verdict for name in ("gate", "frontier", "consumers", "leader")} == {"ok"}
    assert found["frontier"].fact == "the log can be read up to 1 of 1"
    assert found["consumers"].fact == "1, none is halted"
    assert found["leader"].fact.startswith(f"node {running_node.node} (")


async def test_halted_consumers_with_their_error(app: Howdah, database: Database, conn: Any) -> None:
    @app.consumer("Mail", max_failures=1, retry=Backoff(first=0.0))
    async def mail(event: Any) -> None:
        raise ValueError("no address 'hunter2'")

    async with node(app):
        await app.log.append("Order-1", [PLACED, PLACED])
        await eventually(lambda: conn.fetchval("select halted from howdah.checkpoint"))
        [halted] = await examine(database, "consumers")

    assert halted.verdict == "bad"
    assert halted.fact == "Mail is halted at position 1 by ValueError; it is 2 events behind"
    assert halted.fix == (
        "fix the cause (`howdah why --consumer Mail`) and `howdah consumers resume Mail`,"
        " or `howdah consumers skip Mail`"
    )


async def test_consumers_nobody_has_and_parked_events(app: Howdah, database: Database, conn: Any) -> None:
    await declare(conn, "Old")

    @app.consumer("Mail", max_failures=1, on_failure="park")
    async def mail(event: Any) -> None:
        raise ValueError("no")

    async with node(app):
        await app.log.append("Order-1", [PLACED] * 3)
        await eventually(lambda: conn.fetchval("select count(*) = 3 from howdah.parked"))
        nobody, parked = await examine(database, "consumers")

    assert (nobody.verdict, nobody.fact) == ("warn", "no live node has Old; it is 3 events behind")
    assert nobody.fix == "start a worker with it, or delete it: howdah consumers forget Old"
    assert (parked.verdict, parked.fact) == ("warn", "Mail has 3 parked events")
    assert parked.fix == "`howdah consumers parked list Mail` shows them; then retry or drop them"


@pytest.mark.superuser("sees what other roles run")
async def test_an_append_that_stays_open(
    database: Database, direct: Database, conn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await conn.execute("select howdah.append('Order-0', '{\"type\": \"Placed\"}')")
    holder = await direct.connect("careless")
    try:
        await holder.execute("begin")
        await holder.execute("select howdah.append('Order-1', '{\"type\": \"Secret\"}')")
        pid = holder.get_server_pid()
        [short] = await examine(database, "frontier")
        monkeypatch.setattr(doctor_log, "HELD", 0.0)
        [long] = await examine(database, "frontier")
        assert long.fix is not None
        await conn.execute(long.fix.removeprefix("end that transaction, or "))
        await eventually(lambda: conn.fetchval("select not held from howdah.frontier()"))
    finally:
        holder.terminate()
    [ended] = await examine(database, "frontier")

    assert (short.verdict, short.fact) == ("ok", "the log can be read up to 1 of 2")
    assert long.verdict == "bad"
    assert f"pid {pid} (howdah careless" in long.fact
    assert re.search(r"^the log can be read up to 1 of 2: an append of pid .* is open for \d+ s$", long.fact)
    assert "idle in transaction: select howdah.append('…', '…')" in long.fact
    assert ended.verdict == "ok"


async def test_a_gate_that_is_disabled_or_gone(database: Database, conn: Any) -> None:
    await conn.execute("alter table howdah.event disable trigger gate")
    [disabled] = await examine(database, "gate")
    assert disabled.fix is not None
    await conn.execute(disabled.fix)
    [enabled] = await examine(database, "gate")
    await conn.execute("drop trigger gate on howdah.event")
    [gone] = await examine(database, "gate")
    assert gone.fix is not None
    await conn.execute(gone.fix)
    [made] = await examine(database, "gate")

    assert (disabled.verdict, disabled.fact) == (
        "bad",
        "the trigger gate is disabled, so consumers can skip events",
    )
    assert (gone.verdict, gone.fact) == ("bad", "the trigger gate is missing, so consumers can skip events")
    assert enabled.verdict == made.verdict == "ok"


async def test_a_gate_of_another_kind_is_none(database: Database, conn: Any) -> None:
    await conn.execute("drop trigger gate on howdah.event")
    await conn.execute(
        "create trigger gate after insert on howdah.event for each statement execute function howdah.gate()"
    )

    [found] = await examine(database, "gate")

    assert found.fact.startswith("the trigger gate is missing")


async def test_positions_drawn_ahead(database: Database, conn: Any) -> None:
    await conn.execute("alter sequence howdah.event_position_seq cache 20")
    [ahead] = await examine(database, "gate")
    assert ahead.fix is not None
    await conn.execute(ahead.fix)
    [fixed] = await examine(database, "gate")

    assert (ahead.verdict, ahead.fact) == (
        "bad",
        "sessions reserve 20 positions at a time, so consumers can skip events",
    )
    assert fixed.verdict == "ok"


async def test_nobody_leads_though_consumers_wait(database: Database, conn: Any) -> None:
    await declare(conn, "Mail", "Old")
    [nobody_could] = await examine(database, "leader")
    await conn.execute(
        "insert into howdah.node (name, consumers, declared, started_at)"
        " select 'a:1', '{\"Mail\": 1}', json_build_object('Mail', c.digest), now() - interval '1 hour'"
        " from howdah.consumer c where c.name = 'Mail'"
    )
    [found] = await examine(database, "leader")
    await conn.execute("update howdah.node set started_at = now()")
    [just_begun] = await examine(database, "leader")
    await conn.execute("update howdah.node set started_at = now() - interval '1 hour'")
    await conn.execute(
        "update howdah.leader set node = (select id from howdah.node), expires_at = now() + interval '1 hour'"
    )
    [led] = await examine(database, "leader")

    assert (found.verdict, found.fact) == ("bad", "there is no leader, so no node runs these consumers: Mail")
    assert [each.verdict for each in (nobody_could, just_begun, led)] == ["ok"] * 3
    assert led.fact.endswith("(a:1)")


async def test_a_share_left_by_a_dead_node_waits_for_a_leader_too(database: Database, conn: Any) -> None:
    await declare(conn, "Mail")
    await conn.execute("""
        insert into howdah.node (name, consumers, declared, started_at, beat_at)
        select n.name, '{"Mail": 1}', json_build_object('Mail', c.digest), now() - interval '1 hour', n.beat_at
        from howdah.consumer c, (values ('a:1', now()), ('b:2', now() - interval '31 seconds')) n(name, beat_at)
    """)
    await conn.execute("update howdah.consumer_partition set node = (select id from howdah.node where name = 'a:1')")
    [held] = await examine(database, "leader")
    await conn.execute("update howdah.consumer_partition set node = (select id from howdah.node where name = 'b:2')")
    [left] = await examine(database, "leader")

    assert [held.verdict, left.verdict] == ["ok", "bad"]


@pytest.mark.superuser("the roles are those of the schema howdah")
async def test_a_hostile_schema(database: Database) -> None:
    app = Howdah(database.dsn, schema='we"ird; drop--')
    await app.migrate()
    conn = await app.database.connect("test")
    await conn.execute('alter table "we""ird; drop--".event disable trigger gate')
    await conn.execute('alter sequence "we""ird; drop--".event_position_seq cache 5')

    sick = await examine(app.database, "gate")
    for each in sick:
        assert each.fix is not None
        await conn.execute(each.fix)
    [well] = await examine(app.database, "gate")
    await conn.close()

    assert [each.verdict for each in sick] == ["bad", "bad"]
    assert well.verdict == "ok"


async def test_a_gate_that_replication_roles_skip(database: Database, conn: Any) -> None:
    await conn.execute("alter table howdah.event enable trigger gate")
    [partial] = await examine(database, "gate")
    assert partial.fix is not None
    await conn.execute(partial.fix)
    [mended] = await examine(database, "gate")

    assert (partial.verdict, mended.verdict) == ("bad", "ok")
    assert "session_replication_role" in partial.fact


async def test_two_apps_that_declare_one_consumer_differently(database: Database, conn: Any, monkeypatch) -> None:
    apps = [Howdah(database.dsn), Howdah(database.dsn)]
    for app, types in zip(apps, (["A"], ["B"]), strict=True):

        @app.consumer("Mail", types=types)
        async def mail(event: Any) -> None: ...

    async with node(apps[0]) as first:
        await eventually(lambda: conn.fetchval("select node = $1 from howdah.consumer_partition", first.node))
        async with node(apps[1]) as second:
            await eventually(lambda: conn.fetchval("select node = $1 from howdah.consumer_partition", second.node))
            [release] = await examine(database, "consumers")
            monkeypatch.setattr(doctor_log, "RELEASE", 0.0)
            [found] = await examine(database, "consumers")
            name = await conn.fetchval("select name from howdah.node where id = $1", first.node)
    for app in apps:
        await app.close()

    assert release.verdict == "ok", "a release is under way, maybe"
    assert found.verdict == "warn"
    assert found.fact == f"Mail has other `types` or `only` on {name}, which do not run it"
