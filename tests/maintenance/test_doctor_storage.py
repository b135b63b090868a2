"""The doctor looks at our tables: who holds dead rows, whether they are removed, and room for new ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from howdah import Howdah
from howdah.diagnose.doctor import Doctor
from howdah.diagnose.doctor import server as doctor_storage
from howdah.diagnose.finding import Finding
from howdah.postgres.database import Database
from howdah.postgres.embedded import server as embedded
from kit.node import eventually

pytestmark = pytest.mark.anyio


async def examine(database: Database, name: str) -> list[Finding]:
    return [each for each in await Doctor(database).examine() if each.name == name]


@pytest.fixture
async def holder(direct: Database) -> Any:
    """A session that does not end its transaction."""
    conn = await direct.connect("careless")
    await conn.execute("begin")
    await conn.execute("create temp table t (a text)")
    await conn.execute("insert into t values ('hunter2')")
    yield conn
    conn.terminate()


@pytest.mark.superuser("sees what other roles run")
async def test_a_long_transaction_is_named_without_its_values_and_can_be_ended(
    database: Database, conn: Any, holder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    [short] = await examine(database, "horizon")
    monkeypatch.setattr(doctor_storage, "LONG", 0.0)
    [long] = await examine(database, "horizon")
    monkeypatch.setattr(doctor_storage, "TOO_LONG", 0.0)
    [too_long] = await examine(database, "horizon")
    assert long.fix is not None
    await conn.execute(long.fix.removeprefix("end that transaction, or "))
    await eventually(lambda: conn.fetchval("select not exists (select from pg_locks where pid = $1)", pid(holder)))
    [ended] = await examine(database, "horizon")

    assert short.verdict == ended.verdict == "ok"
    assert (long.verdict, too_long.verdict) == ("warn", "bad")
    assert f"transaction pid {pid(holder)} (howdah careless) has kept dead rows for " in long.fact
    assert "insert into t values ('…')" in long.fact
    assert "hunter2" not in long.fact


async def test_a_transaction_in_another_database_holds_nothing_here(
    database: Database, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_storage, "LONG", 0.0)
    with psycopg.connect(server.dsn) as elsewhere:
        elsewhere.execute("select txid_current()")
        found = await examine(database, "horizon")

    assert [each.verdict for each in found] == ["ok"]


async def test_sessions_that_are_hidden_are_counted(direct: Database, conn: Any, holder: Any) -> None:
    role = f"looks only {pid(holder)}"
    await conn.execute(f'create role "{role}"; grant pg_read_all_data to "{role}"')
    seen = Database(with_role(direct.dsn, role))
    try:
        [blind] = await examine(seen, "horizon")
        await conn.execute(f'grant pg_read_all_stats to "{role}"')
        [sees] = await examine(seen, "horizon")
    finally:
        await conn.execute(f'drop role "{role}"')

    assert blind.verdict == "ok"
    grant = f'grant pg_read_all_stats to "{role}"'
    assert blind.fact.endswith(f"sessions of other roles are not visible, to see them {grant}")
    assert sees.fact == "no transaction or replication slot prevents the removal of dead rows"


@pytest.fixture(scope="module")
def replicating() -> Iterator[embedded.Server]:
    """A server with replication slots and prepared transactions."""
    with embedded.start(settings={"fsync": "off", "wal_level": "logical", "max_prepared_transactions": "2"}) as server:
        yield server


async def test_a_replication_slot_nobody_reads(replicating: embedded.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Howdah(replicating.dsn)
    await app.migrate()
    with psycopg.connect(replicating.dsn, autocommit=True) as conn:
        conn.execute("select pg_create_logical_replication_slot('left_alone', 'pgoutput')")
        [near] = await examine(app.database, "horizon")
        monkeypatch.setattr(doctor_storage, "FAR_BEHIND", -1)
        [far] = await examine(app.database, "horizon")
        monkeypatch.setattr(doctor_storage, "MUCH_KEPT", -1)
        [much] = await examine(app.database, "horizon")
        assert far.fix is not None
        conn.execute(far.fix.removeprefix("wait for its reader, or "))  # type: ignore[arg-type]
        [gone] = await examine(app.database, "horizon")

    assert near.verdict == gone.verdict == "ok"
    assert (far.verdict, far.fact) == ("warn", "replication slot left_alone keeps dead rows: no client reads it")
    assert " keeps dead rows and 0.0 GB of WAL: no client reads it" in much.fact


async def test_a_prepared_transaction(replicating: embedded.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Howdah(replicating.dsn)
    await app.migrate()
    monkeypatch.setattr(doctor_storage, "LONG", 0.0)
    with psycopg.connect(replicating.dsn, autocommit=True) as conn:
        conn.execute("begin")
        conn.execute("select txid_current()")
        conn.execute("prepare transaction 'it''s mine'")
        [found] = await examine(app.database, "horizon")
        assert found.fix is not None
        conn.execute(found.fix.partition(", or ")[2])  # type: ignore[arg-type]
        [gone] = await examine(app.database, "horizon")

    assert found.fact.startswith("prepared transaction it's mine has kept dead rows for ")
    assert found.fact.endswith(": prepared by postgres")
    assert gone.verdict == "ok"


@pytest.mark.parametrize("word", ["false", "off"])
async def test_autovacuum_switched_off(database: Database, conn: Any, word: str) -> None:
    await conn.execute(f"alter table howdah.ready set (autovacuum_enabled = {word})")

    [off] = await examine(database, "vacuum")
    assert off.fix is not None
    await conn.execute(off.fix)
    [on] = await examine(database, "vacuum")

    assert (off.verdict, off.fact) == ("bad", "autovacuum is off for ready")
    assert on.verdict == "ok"


async def test_many_dead_rows(database: Database, conn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_storage, "MANY_DEAD", 200)
    [few] = await examine(database, "vacuum")
    await conn.execute("alter table howdah.hold set (autovacuum_vacuum_threshold = 1000000)")  # let them lie
    await conn.execute("insert into howdah.hold select 'kind ' || i, now(), '' from generate_series(1, 300) i")
    await conn.execute("update howdah.hold set reason = 'now'")

    async def found() -> Finding | None:
        [finding] = await examine(database, "vacuum")
        return finding if finding.verdict == "warn" else None

    many = await eventually(found, 30)  # counters arrive a little later

    assert few.verdict == "ok"
    assert re.fullmatch(r"many dead rows: hold \d+ \(\d+ live\)", many.fact)


async def test_a_table_much_larger_than_its_rows(
    database: Database, conn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_storage, "BLOATED", 500_000)
    await conn.execute(
        "insert into howdah.ready (lo, hi, priority, attempt, queue, kind)"
        " select i, i + 1, 0, 0, 'default', 'send' from generate_series(1, 4000) i"
    )
    await conn.execute("analyze howdah.ready")
    full = await examine(database, "bloat")
    await conn.execute("delete from howdah.ready where lo > 10")
    await conn.execute("analyze howdah.ready")

    async def found() -> list[Finding]:
        return await examine(database, "bloat")

    [bloated] = await eventually(found, 30)
    assert bloated.fix is not None
    await conn.execute(bloated.fix.removeprefix("while there is little load, since it locks the table: "))
    tidied = await examine(database, "bloat")

    assert (full, tidied) == ([], [])
    assert bloated.verdict == "warn"
    assert re.fullmatch(r"ready takes \d+ MB for \d+ rows", bloated.fact)  # as the counters have it by then


async def test_partitions_that_ran_out(database: Database, conn: Any) -> None:
    starts = sorted(
        int(row["relname"].split("_")[1])
        for row in await conn.fetch(r"select relname from pg_class where relname ~ '^job_\d+_\d+$'")
    )

    found = []
    for head in (starts[-2], starts[-1]):
        await conn.execute("select setval('howdah.job_id', $1)", head)
        [partitions] = await examine(database, "partitions")
        found.append((partitions.verdict, partitions.fact))

    assert found == [("warn", "1 exist for future jobs"), ("bad", "0 exist for future jobs")]


async def test_many_jobs_outside_the_partitions(database: Database, conn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_storage, "MANY_UNOWNED", 1)
    found = []
    for id in (10**12, 10**12 + 1):
        await conn.execute("insert into howdah.job (id, queue, kind, args) values ($1, 'default', 'send', '{}')", id)
        found += [each.verdict for each in await examine(database, "partitions")]

    assert found == ["ok", "warn"]


async def test_who_keeps_partitions_from_being_created(
    database: Database, conn: Any, direct: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await conn.execute("select howdah.grow(), setval('howdah.job_id', 3500000)")
    [before] = await examine(database, "upkeep")
    dump = await direct.connect("dump")
    holder = pid(dump)
    await dump.execute("begin")
    await dump.execute("select from howdah.job")
    assert await conn.fetchval("select howdah.grow()") == 0
    [held] = await examine(database, "upkeep")
    monkeypatch.setattr(doctor_storage, "STALLED", 0.0)
    [stalled] = await examine(database, "upkeep")
    await dump.execute("commit")
    dump.terminate()
    assert await conn.fetchval("select howdah.grow()") > 0
    [after] = await examine(database, "upkeep")

    assert before.verdict == after.verdict == "ok"
    assert (held.verdict, stalled.verdict) == ("warn", "bad")
    assert held.fact.startswith("partitions could not be created for ")
    assert held.fact.endswith(f"process {holder} (howdah dump) held their tables")


def pid(conn: Any) -> int:
    return int(conn.get_server_pid())


def with_role(dsn: str, role: str) -> str:
    parts = urlsplit(dsn)
    options = f"options=-crole%3D{role.replace(' ', '%5C%20')}"
    return urlunsplit(parts._replace(query="&".join(filter(None, [parts.query, options]))))
