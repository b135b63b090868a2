"""The doctor looks at the server: what it is, the way to it, and how many connections it has left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from howdah.diagnose.doctor import Doctor
from howdah.diagnose.doctor import server as doctor_server
from howdah.diagnose.finding import Finding
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.postgres.sql import identifier
from howdah_lab.torture.servers.pooler import Pooler
from howdah_lab.torture.servers.small_disk import SmallTables

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


async def examine(database: Database) -> dict[str, Finding]:
    return {each.name: each for each in await Doctor(database).examine()}


@pytest.mark.parametrize(
    ("number", "standby", "verdict", "fix"),
    [
        (140000, False, "ok", None),
        (130012, False, "bad", "upgrade it to 14 or later"),
        (180004, True, "bad", "connect to the primary"),
    ],
    ids=["oldest", "too old", "standby"],
)
def test_what_server_it_is(number: int, standby: bool, verdict: str, fix: str | None) -> None:
    found = doctor_server.check_version({"number": number, "version": "x", "standby": standby})

    assert (found.verdict, found.fix) == (verdict, fix)


@pytest.mark.parametrize(
    ("skew", "took", "fact"),
    [
        (0.0, 0.0, "within 0.001 s of this machine"),
        (0.9, 0.0, "within 0.900 s of this machine"),
        (7200.0, 0.0, "the server is 7200.0 s ahead of this machine"),
        (-90.0, 0.0, "the server is 90.0 s behind this machine"),
        (1.5, 2.0, "within 0.500 s of this machine"),  # somewhere within the time it took to ask
    ],
)
def test_clocks_that_differ(skew: float, took: float, fact: str) -> None:
    found = doctor_server.check_clock(NOON + timedelta(seconds=skew), NOON, NOON + timedelta(seconds=took))

    assert found.fact == fact
    assert found.verdict == ("ok" if fact.startswith("within") else "warn")


@pytest.mark.parametrize("mode", ["transaction", "session"])
async def test_a_pooler_is_noticed_and_its_mode_too(server: Any, direct: Database, mode: str) -> None:
    if missing := Pooler.missing():
        pytest.skip(missing)

    with Pooler(server.dsn, mode=mode) as pooler:
        found = await examine(Database(pooler.dsn_for(urlsplit(direct.dsn).path[1:])))

    shared = mode == "transaction"
    assert found["pooler"].fact.startswith(f"connected through a {mode} pooler")
    assert found["notify"].verdict == ("warn" if shared else "ok")
    assert found["notify"].fix == ("connect nodes without a transaction pooler" if shared else None)


async def test_no_pooler(direct: Database) -> None:
    found = await examine(direct)

    assert (found["pooler"].verdict, found["pooler"].fact) == ("ok", "connected directly")
    assert found["notify"].verdict == "ok"


async def test_a_server_that_is_nearly_full_says_who_is_there(
    direct: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    well = (await examine(direct))["connections"]
    monkeypatch.setattr(doctor_server, "FULL", 0.0)
    full = (await examine(direct))["connections"]
    monkeypatch.setattr(doctor_server, "TOO_FULL", 0.0)
    too_full = (await examine(direct))["connections"]

    assert [each.verdict for each in (well, full, too_full)] == ["ok", "warn", "bad"]
    assert " in use, most by " in full.fact
    assert full.fix == "raise max_connections, or use a connection pooler"


async def test_pools_that_can_grow_beyond_what_there_is(direct: Database, conn: Any) -> None:
    most = await conn.fetchval("""
        select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
    """)
    add = """
        insert into howdah.node (name, slots, remote, beat_at)
        select 'n:' || i, $1, $2, $3 from generate_series(1, $4) i
    """
    now = await conn.fetchval("select now()")
    enough = most // 20 + 1

    none = (await examine(direct))["connections"]
    await conn.execute(add, 50, True, now, enough)  # over HTTP they need none
    await conn.execute(add, 50, False, now - timedelta(hours=1), enough)  # and the dead need none
    dead = (await examine(direct))["connections"]
    await conn.execute(add, 1, False, now, 1)
    small = (await examine(direct))["connections"]
    await conn.execute(add, 50, False, now, enough)
    found = (await examine(direct))["connections"]

    assert [each.verdict for each in (none, dead, small, found)] == ["ok", "ok", "ok", "warn"]
    assert "pools" not in dead.fact
    assert "; the pools of live nodes (1) can make it " in small.fact
    assert f", but the pools of live nodes ({enough + 1}) can make it " in found.fact
    assert found.fix is not None
    assert found.fix.startswith("set max_connections to ")


async def test_consumers_have_a_pool_of_their_own(direct: Database, conn: Any) -> None:
    reach = "; the pools of live nodes (1) can make it "
    await conn.execute("insert into howdah.node (name, slots) values ('a:1', 4)")
    without = (await examine(direct))["connections"].fact
    await conn.execute('update howdah.node set consumers = \'{"Mail": 2, "View": 1}\'')
    with_them = (await examine(direct))["connections"].fact

    # others may come and go on this server meanwhile
    assert _grows(with_them, reach) - _grows(without, reach) == 7


@pytest.mark.superuser("roles are made")
async def test_a_server_whose_connections_are_all_taken_is_not_said_to_be_down(direct: Database, conn: Any) -> None:
    await conn.execute("drop role if exists howdah_queue_outside")
    await conn.execute("create role howdah_queue_outside login password 'x' connection limit 0")
    try:
        parts = urlsplit(direct.dsn)
        taken = parts._replace(netloc=f"howdah_queue_outside:x@{parts.netloc.rpartition('@')[2]}").geturl()

        [found] = await Doctor(Database(taken)).examine()
    finally:
        await conn.execute("drop role howdah_queue_outside")

    assert (found.name, found.verdict) == ("database", "bad")
    assert "too many connections" in found.fact
    assert found.fix == "close connections, raise max_connections or the CONNECTION LIMIT, or use a connection pooler"
    [down] = await Doctor(Database("postgresql://nobody@/x?host=/nowhere")).examine()
    assert down.fix == "start it, or correct the DSN"


async def test_a_full_disk_is_noticed() -> None:
    if missing := SmallTables.missing():
        pytest.skip(missing)
    async with SmallTables() as own_server:
        database = Database(own_server.dsn)
        await migrate.migrate(database)
        before = (await examine(database))["disk"]
        await own_server.fill()

        full = (await examine(database))["disk"]

    assert (before.verdict, before.fact) == ("ok", "there is space for another 8 MB")
    assert full.verdict == "bad"
    assert "No space left on device" in full.fact


@pytest.mark.superuser("settings of a database are its owner's")
@pytest.mark.parametrize(
    ("setting", "value", "verdict"),
    [("synchronous_commit", "off", "warn"), ("default_transaction_read_only", "on", "bad"), ("work_mem", "64kB", "ok")],
)
async def test_settings_that_break_a_promise_are_named(
    direct: Database, conn: Any, setting: str, value: str, verdict: str
) -> None:
    await conn.execute(f"alter database {identifier(urlsplit(direct.dsn).path[1:])} set {setting} = '{value}'")

    found = (await examine(direct))["settings"]

    assert found.verdict == verdict
    assert found.fact.startswith(f"{setting} is {value}") == (verdict != "ok")


def _grows(fact: str, reach: str) -> int:
    used, _, might = fact.partition(reach)
    return int(might) - int(used.split()[0])
