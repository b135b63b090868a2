"""Settings of a role or a database: with each, an application works, or is refused at the start with the name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from howdah import ConfigError, DatabaseUnreachable, Howdah, Retry, Transaction
from howdah.jobs.new import NewJob
from howdah.pg.database import Database
from howdah.pg.settings import STEADY
from howdah.pg.sql import identifier, literal
from howdah.upkeep.pruner import Pruner, Retention
from kit.node import eventually, node
from kit.refuser import Refuser

pytestmark = [pytest.mark.anyio, pytest.mark.superuser("settings of a database are its owner's")]

ISOLATION = {"default_transaction_isolation": "serializable", "default_transaction_deferrable": "on"}
HARMLESS: dict[str, dict[str, str]] = {
    "serializable": ISOLATION,
    "repeatable read": {"default_transaction_isolation": "repeatable read"},
    "formats": {
        "DateStyle": "German, DMY",
        "IntervalStyle": "iso_8601",
        "TimeZone": "Asia/Kathmandu",
        "extra_float_digits": "-15",
        "bytea_output": "escape",
        "client_encoding": "LATIN1",
        "xmlbinary": "hex",
    },
    "planner": {
        "enable_indexscan": "off",
        "enable_indexonlyscan": "off",
        "enable_bitmapscan": "off",
        "enable_nestloop": "off",
        "enable_hashjoin": "off",
        "enable_sort": "off",
        "jit": "on",
        "jit_above_cost": "0",
        "plan_cache_mode": "force_custom_plan",
        "work_mem": "64kB",
        "join_collapse_limit": "1",
    },
    "strings": {
        "standard_conforming_strings": "off",
        "escape_string_warning": "off",
        "backslash_quote": "off",
        "quote_all_identifiers": "on",
        "array_nulls": "off",
        "transform_null_equals": "on",
    },
    "limits": {
        "statement_timeout": "20s",
        "lock_timeout": "10s",
        "idle_in_transaction_session_timeout": "20s",
        "transaction_timeout": "200ms",
    },
    "the rest": {
        "synchronous_commit": "off",
        "row_security": "off",
        "default_tablespace": "pg_default",
        "check_function_bodies": "off",
        "session_replication_role": "local",
        "default_toast_compression": "pglz",
        "search_path": "nowhere",
    },
}


@dataclass
class Shop:
    """A small application that uses everything once, and what it did."""

    app: Howdah
    done: list[str]

    async def run(self, conn: Any) -> None:
        """Enqueue, work, consume, tidy; returns when everything happened."""
        app, done = self.app, self.done
        await app.enqueue(app.tasks["succeed"].job())
        await app.enqueue_many(app.tasks["succeed"].job() for _ in range(3))
        await app.enqueue(app.tasks["flaky"].job())
        await app.enqueue(app.tasks["write"].job())
        await app.enqueue(app.tasks["succeed"].using(key="k", delay=0.1).job())
        await app.log.append("Order-1", [{"type": "Placed", "data": {"n": 1}}])
        everything = {"succeed": 5, "flaky": 2, "write": 1, "follow": 1}

        async def complete() -> bool:
            counts = {name: done.count(name) for name in everything}
            rows = await conn.fetch("select kind, state, count(*) as n from howdah.jobs group by 1, 2")
            states = {(row["kind"], row["state"]): row["n"] for row in rows}
            ended = {("succeed", "done"): 5, ("flaky", "done"): 1, ("write", "done"): 1}
            checkpoint = await conn.fetchval("select min(position) from howdah.checkpoint")
            fired = states.get(("tick", "done"), 0)
            return counts == everything and ended.items() <= states.items() and bool(fired) and bool(checkpoint)

        async with node(app):
            await eventually(complete, 60)
        assert await conn.fetchval("select count(*) from written") == 1

    async def tidy(self, conn: Any) -> None:
        """Prune everything; the partitions to come are there."""
        partitions = "select count(*) from pg_inherits where inhparent = 'howdah.job'::regclass"
        assert await conn.fetchval(partitions) > 1
        session = await self.app.database.connect("test")
        await session.fetchval("select howdah.grow()")  # one more, if no node has made it since the last job
        assert await session.fetchval("select howdah.grow()") == 0  # finds those that are there
        await session.close()
        await Pruner(self.app.database, Retention(done=0, failed=0)).prune()
        assert await conn.fetchval("select count(*) from howdah.done") == 0


def shop(dsn: str) -> Shop:
    app, done = Howdah(dsn), []

    @app.task
    async def succeed() -> None:
        done.append("succeed")

    @app.task
    async def flaky() -> None:
        done.append("flaky")
        if done.count("flaky") == 1:
            raise Retry("not yet", after=0.1)

    @app.task(transactional=True)
    async def write(tx: Transaction) -> None:
        await tx.execute("insert into public.written values (now())")
        await tx.execute("select pg_sleep(0.3)")
        done.append("write")

    @app.task
    async def tick() -> None: ...

    app.schedule("tick", tick.job(), cron="* * * * * *")

    @app.consumer("follow")
    async def follow(event: Any, tx: Any) -> None:
        await tx.execute("select 1")
        done.append("follow")

    return Shop(app, done)


async def apply(conn: Any, dsn: str, settings: dict[str, str]) -> None:
    """Let every new session of the database have these settings."""
    known = {row["name"].lower() for row in await conn.fetch("select name from pg_settings")}
    for name, value in settings.items():
        if name.lower() in known:
            database = identifier(urlsplit(dsn).path[1:])
            await conn.execute(f"alter database {database} set {name} = {literal(value)}")


@pytest.fixture
async def ready(conn):
    await conn.execute("create table public.written (at timestamptz)")
    return conn


@pytest.mark.parametrize("name", HARMLESS)
async def test_an_application_works_with(direct, ready, name):
    await apply(ready, direct.dsn, HARMLESS[name])
    made = shop(direct.dsn)

    await made.run(ready)

    await made.tidy(ready)
    await made.app.close()


async def test_settings_of_a_role_are_met_like_those_of_a_database(direct, ready):
    await ready.execute("drop role if exists howdah_strict")
    await ready.execute("create role howdah_strict login superuser password 'strict'")
    try:
        for name, value in ISOLATION.items():
            await ready.execute(f"alter role howdah_strict set {name} = {literal(value)}")
        parts = urlsplit(direct.dsn)
        strict = parts._replace(netloc=f"howdah_strict:strict@{parts.netloc.rpartition('@')[2]}").geturl()
        made = shop(strict)

        await made.run(ready)
        await made.app.close()
    finally:
        await ready.execute("reassign owned by howdah_strict to current_user")
        await ready.execute("drop role howdah_strict")


async def test_the_settings_are_really_in_force_for_others(direct, ready):
    """Negative control: a connection that is not Howdah's has them."""
    await apply(ready, direct.dsn, ISOLATION | HARMLESS["limits"])

    plain = await asyncpg.connect(direct.dsn)

    assert await plain.fetchval("show default_transaction_isolation") == "serializable"
    assert await plain.fetchval("show lock_timeout") == "10s"
    await plain.close()


async def test_without_what_howdah_sends_the_node_is_refused_by_name(direct, ready, monkeypatch):
    """Negative control: it is the startup that keeps the node working, and the check sees when it does not."""
    await apply(ready, direct.dsn, ISOLATION)
    monkeypatch.delitem(STEADY, "default_transaction_isolation")

    with pytest.raises(ConfigError, match="default_transaction_isolation is 'serializable'"):
        await shop(direct.dsn).app.work()


SHADOW = """
create schema shade;
create function shade.now() returns timestamptz language sql as $$ select 'infinity'::timestamptz $$;
create function shade.unnest(anyarray) returns setof anyelement language sql as $$ select $1[1] where false $$;
create function shade.clock_timestamp() returns timestamptz language sql as $$ select '-infinity'::timestamptz $$;
create function shade.pg_notify(text, text) returns void language plpgsql as $$ begin raise 'shaded'; end $$;
create function shade.set_config(text, text, boolean) returns text language plpgsql as $$ begin raise 'shaded'; end $$;
create table shade.of_its_own (n int);
"""


async def test_functions_of_a_schema_before_pg_catalog_are_not_called(direct, ready):
    await ready.execute(SHADOW)
    await apply_path(ready, direct.dsn)
    made = shop(direct.dsn)

    await made.run(ready)
    await made.tidy(ready)

    session = await direct.connect("test")
    assert await session.fetchval("show search_path") == "shade, public"
    assert await session.fetchval("select count(*) from of_its_own") == 0  # tables are still found there
    await session.close()
    await made.app.close()


async def apply_path(conn: Any, dsn: str) -> None:
    await conn.execute(
        f"alter database {identifier(urlsplit(dsn).path[1:])} set search_path = shade, pg_catalog, public"
    )


@pytest.mark.parametrize(
    ("setting", "value"),
    [("session_replication_role", "replica"), ("default_transaction_read_only", "on")],
)
async def test_a_node_is_refused_with_the_name_of(direct, ready, setting, value):
    await apply(ready, direct.dsn, {setting: value})

    with pytest.raises(ConfigError, match=f"^{setting} is "):
        await shop(direct.dsn).app.work()
    assert await ready.fetchval("select count(*) from howdah.node") == 0


async def test_an_enqueue_that_may_not_write_says_that_nothing_happened(direct, ready):
    await apply(ready, direct.dsn, {"default_transaction_read_only": "on"})
    app = shop(direct.dsn).app

    with pytest.raises(DatabaseUnreachable, match=r"nothing happened: .* default_transaction_read_only"):
        await app.enqueue(app.tasks["succeed"].job())
    await app.close()


POOLED = {
    "default_transaction_isolation": "repeatable read",
    "standard_conforming_strings": "off",
    "transaction_timeout": "200ms",
}


@pytest.mark.parametrize("setting", [*POOLED, "search_path"])
async def test_behind_a_pooler_it_is_refused_with_the_name_of(direct, ready, tmp_path, setting):
    if setting == "search_path":
        await ready.execute(SHADOW)
        await apply_path(ready, direct.dsn)
    elif await ready.fetchval("select current_setting($1, true)", setting) is None:
        pytest.skip(f"this server has no {setting}")
    else:
        await apply(ready, direct.dsn, {setting: POOLED[setting]})

    async with Refuser(direct.dsn, tmp_path) as pooler:
        app = shop(pooler.dsn).app
        with pytest.raises(ConfigError, match=f"^{setting} is .* pooler"):
            await app.work()
        with pytest.raises(ConfigError, match=f"^{setting} is .* pooler"):
            await app.enqueue(app.tasks["succeed"].job())
        await app.close()


async def test_behind_a_pooler_with_ordinary_settings_everything_works(direct, ready, tmp_path):
    """Negative control: it is the settings that are refused, not the pooler."""
    async with Refuser(direct.dsn, tmp_path) as pooler:
        database = Database(pooler.dsn)
        await database.check(writes=True)
        assert database.pooled
        made = shop(pooler.dsn)
        await made.run(ready)
        await made.app.close()


@pytest.mark.parametrize("name", ["serializable", "strings", "limits"])
async def test_a_schema_can_be_made_with(direct, conn, name):
    await apply(conn, direct.dsn, HARMLESS[name] | {"search_path": '"$user", public'})
    app = Howdah(direct.dsn, schema="back\\slash'")

    await app.migrate()

    assert await conn.fetchval("""select "back\\slash'".fingerprint('id 17 of "x"')""") == "id # of '\u2026'"
    made = await app.enqueue(NewJob(kind="any"))
    assert made.fresh
    await app.close()


async def test_functions_do_the_same_for_callers_without_standard_strings(direct, conn):
    await conn.execute("select howdah.grow()")
    await conn.execute("set standard_conforming_strings = off")

    assert await conn.fetchval("select howdah.grow(8)") == 4
    assert await conn.fetchval("select howdah.grow(8)") == 0
    assert await conn.fetchval("select howdah.fingerprint('word  17')") == "word #"
