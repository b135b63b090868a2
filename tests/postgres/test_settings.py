"""Settings of a role or a database: with each, an application works, or is refused at the start with the name."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from howdah import ConfigError, DatabaseUnreachable, Howdah
from howdah.job import NewJob
from howdah.postgres.database import Database
from howdah.postgres.settings import SESSION_SETTINGS
from howdah.postgres.sql import identifier
from kit.node import eventually
from kit.sample_app import apply, shop
from kit.strict_pooler import StrictPooler

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
        "enable_tidscan": "off",
        "enable_hashagg": "off",
        "enable_mergejoin": "off",
        "enable_material": "off",
        "enable_memoize": "off",
        "enable_partition_pruning": "off",
        "work_mem": "64kB",
        "join_collapse_limit": "1",
        "debug_parallel_query": "on",
        "force_parallel_mode": "on",
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
        "idle_session_timeout": "5s",
        "transaction_timeout": "200ms",
    },
    "errors": {
        "exit_on_error": "on",
        "track_activities": "off",
        "stats_fetch_consistency": "snapshot",
        "lock_timeout": "500ms",
        "xmloption": "document",
        "gin_fuzzy_search_limit": "1",
        "temp_file_limit": "1MB",
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


EVERYTHING = {name: value for settings in HARMLESS.values() for name, value in settings.items()}
ROLES = {"role": "alter role howdah_strict", "role in a database": "alter role howdah_strict in database {database}"}


@pytest.mark.parametrize("scope", ROLES)
async def test_settings_of_a_role_are_met_like_those_of_a_database(direct, ready, scope):
    await ready.execute("drop role if exists howdah_strict")
    await ready.execute("create role howdah_strict login superuser password 'strict'")
    try:
        await apply(ready, direct.dsn, EVERYTHING | ISOLATION, ROLES[scope])
        parts = urlsplit(direct.dsn)
        strict = parts._replace(netloc=f"howdah_strict:strict@{parts.netloc.rpartition('@')[2]}").geturl()
        made = shop(strict)

        await made.run(ready)
        await made.app.close()
        plain = await asyncpg.connect(strict)  # negative control: connections that are not Howdah's have them
        assert await plain.fetchval("show default_transaction_isolation") == "serializable"
        await plain.close()
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


async def test_a_connection_that_is_idle_for_long_is_not_ended_by_the_server(direct, ready):
    await apply(ready, direct.dsn, {"idle_session_timeout": "1s"})
    kept = await direct.connect("test")
    ended = await asyncpg.connect(direct.dsn)  # negative control

    async def closed() -> bool:
        return bool(ended.is_closed())

    await eventually(closed)
    assert await kept.fetchval("select 1") == 1
    await kept.close()


async def test_without_what_howdah_sends_the_node_is_refused_by_name(direct, ready, monkeypatch):
    """Negative control: it is the startup that keeps the node working, and the check sees when it does not."""
    await apply(ready, direct.dsn, ISOLATION)
    monkeypatch.delitem(SESSION_SETTINGS, "default_transaction_isolation")

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

    async with StrictPooler(direct.dsn, tmp_path) as pooler:
        app = shop(pooler.dsn).app
        with pytest.raises(ConfigError, match=f"^{setting} is .* pooler"):
            await app.work()
        with pytest.raises(ConfigError, match=f"^{setting} is .* pooler"):
            await app.enqueue(app.tasks["succeed"].job())
        await app.close()


async def test_behind_a_pooler_with_ordinary_settings_everything_works(direct, ready, tmp_path):
    """Negative control: it is the settings that are refused, not the pooler."""
    async with StrictPooler(direct.dsn, tmp_path) as pooler:
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
