"""The doctor: a healthy database is well, and each illness is found."""

from __future__ import annotations

import doctest

import pytest

from howdah import Howdah, __version__
from howdah.diagnose import doctor, finding
from howdah.diagnose.doctor import Doctor
from howdah.postgres.database import Database
from kit.node import eventually, node

pytestmark = pytest.mark.anyio

CHECKS = [
    "database",
    "schema",
    "clock",
    "settings",
    "disk",
    "pooler",
    "notify",
    "places",
    "repair",
    "horizon",
    "vacuum",
    "partitions",
    "upkeep",
    "connections",
    "nodes",
    "leases",
    "paused",
    "unserved",
    "schedules",
    "gate",
    "frontier",
    "consumers",
    "leader",
]


async def examine(database) -> dict[str, finding.Finding]:
    return {each.name: each for each in await Doctor(database).examine()}


async def test_a_healthy_database_is_well(app, direct, conn, pooler):
    if pooler is not None:
        pytest.skip("behind a pooler nodes are deaf")

    @app.task
    async def send() -> None: ...

    await app.enqueue_many(send.job() for _ in range(20))
    async with node(app):
        await eventually(lambda: conn.fetchval("select count(*) = 1 from howdah.node where not deaf and running = 0"))
        found = await examine(direct)
    await app.close()

    assert list(found) == CHECKS
    assert {each.name for each in found.values() if each.verdict != "ok" or each.fix is not None} == set()


async def test_a_database_that_does_not_answer():
    [found] = await Doctor(Database("postgresql://127.0.0.1:1/none")).examine()

    assert (found.name, found.verdict) == ("database", "bad")


@pytest.mark.parametrize(("number", "fix"), [(0, "run `howdah migrate`"), (99, "upgrade howdah")])
async def test_another_schema_version(database, conn, number, fix):
    await conn.execute("delete from howdah.migration where number > 1")
    await conn.execute("update howdah.migration set number = $1, works_from = $1", number)

    found = await examine(database)

    assert list(found) == ["database", "schema"]
    assert (found["schema"].verdict, found["schema"].fix) == ("bad", fix)


async def test_jobs_in_two_places_or_in_none(app, database, conn):
    @app.task
    async def send() -> None: ...

    made = [each.id for each in await app.enqueue_many(send.job() for _ in range(8))]
    await app.close()
    await conn.execute("delete from howdah.ready")
    run = "insert into howdah.ready (lo, hi, priority, attempt, queue, kind) values ($1, $2, 0, 0, 'default', 'send')"
    await conn.execute(run, made[0], made[7])  # the last is nowhere
    await conn.execute("insert into howdah.later values ($1, now(), 0, 0, 'default', 'send')", made[2])
    await conn.execute("insert into howdah.done (id, attempt, state) values ($1, 1, 'd')", made[4])

    places = (await examine(database))["places"]
    await conn.execute(run, made[1], made[5])
    overlapping = (await examine(database))["places"]

    assert places.verdict == "bad"
    assert places.fact == f"jobs in two places or in none: {made[2]}, {made[4]}, {made[7]}; overlapping runs: 0"
    assert overlapping.fact.endswith("overlapping runs: 1")


async def test_a_lease_may_name_what_is_done_or_gone(app, database, conn):
    @app.task
    async def send() -> None: ...

    made = [each.id for each in await app.enqueue_many(send.job() for _ in range(4))]
    await app.close()
    await conn.execute("delete from howdah.ready")
    token = await conn.fetchval(
        "insert into howdah.lease (node, expires_at, first_id, end_id, rids, los, his, attempts)"
        " values (1, now() + interval '1 hour', $1, $2, '{1}', array[$1::int8], array[$2::int8], '{1}')"
        " returning token",
        made[0],
        made[3] + 1,
    )
    await conn.execute("insert into howdah.done (id, attempt, state) values ($1, 1, 'd')", made[1])
    await conn.execute("insert into howdah.gone values ($1, $2)", token, made[2])
    await conn.execute("insert into howdah.later values ($1, now(), 0, 0, 'default', 'send')", made[2])

    assert (await examine(database))["places"].verdict == "ok"


async def test_silent_deaf_and_outdated_nodes(database, conn):
    await conn.execute("""
        insert into howdah.node (name, version, deaf, beat_at)
        values ('a:1', '0.0.1', true, now()), ('b:2', '0.0.1', false, now() - interval '5 minutes');
        insert into howdah.node (name, version, state) values ('c:3', '0.0.0', 'offline');
    """)

    found = [(each.name, each.fact) for each in await Doctor(database).examine() if each.verdict == "warn"]

    assert ("nodes", "no heartbeat for more than 1 min: b:2") in found
    assert ("nodes", "no wake-ups arrive at a:1, so they poll") in found
    assert any(name == "versions" and fact.startswith("0.0.1, ") for name, fact in found)


async def test_one_version_everywhere_is_no_finding(database, conn):
    await conn.execute("insert into howdah.node (name, version) values ('a:1', $1)", __version__)
    await conn.execute("insert into howdah.node (name, version, state) values ('b:2', '0.0.1', 'offline')")

    found = await examine(database)

    assert "versions" not in found
    assert (found["nodes"].verdict, found["nodes"].fact) == ("ok", "1 live")


async def test_leases_nobody_took_back(database, conn):
    await conn.execute("""
        insert into howdah.lease (node, expires_at, first_id, end_id, rids, los, his, attempts)
        values (1, now() - interval '10 minutes', 1, 2, '{1}', '{1}', '{2}', '{1}')
    """)

    leases = (await examine(database))["leases"]

    assert (leases.verdict, leases.fact) == ("bad", "1 expired and not reset for up to 10 min")


async def test_paused_queues_and_kinds_nobody_has(database, conn):
    await conn.execute("select howdah.enqueue('send', queue => 'mail'), howdah.enqueue('work')")
    await conn.execute("select howdah.pause('mail', 'ada'), howdah.pause('empty')")
    await conn.execute("insert into howdah.node (name, kinds) values ('a:1', '{work}')")

    found = await examine(database)

    assert found["paused"].fact.startswith("queue 'mail' was paused ")
    assert found["paused"].fact.endswith(" s ago by ada; jobs waiting: 1")
    assert found["paused"].fix == "howdah resume mail"
    assert found["unserved"].fact == "no live node serves 1 of send in mail"


async def test_a_check_that_takes_too_long_does_not_stop_the_others(database, conn, monkeypatch):
    monkeypatch.setattr(doctor, "CHECK_TIMEOUT", 0.3)
    async with conn.transaction():
        await conn.execute("lock table howdah.lease in access exclusive mode")
        found = await examine(database)

    assert found["leases"].fact == "could not be examined within 0.3 s"
    assert found["places"].verdict == "warn"
    assert found["unserved"].verdict == "ok"


@pytest.mark.superuser("the roles are those of the schema howdah")
async def test_a_hostile_schema(database):
    app = Howdah(database.dsn, schema='we"ird; drop--')
    await app.migrate()

    found = await examine(app.database)

    assert {each.verdict for each in found.values() if each.name != "notify"} == {"ok"}


def test_examples_in_the_code_are_true():
    assert doctest.testmod(finding).failed == 0
