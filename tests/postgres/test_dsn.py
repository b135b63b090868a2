"""Addresses of databases as applications have them."""

from __future__ import annotations

import pytest

from howdah import ConfigError, Howdah
from howdah.postgres.database import Database
from howdah.postgres.dsn import plain_dsn

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg", "psycopg2", "psycopg_async"])
async def test_the_address_of_a_sqlalchemy_engine_is_understood_everywhere(database, driver, monkeypatch):
    dsn = database.dsn.replace("postgresql://", f"postgresql+{driver}://")
    monkeypatch.setenv("HOWDAH_DSN", dsn)
    for app in (Howdah(dsn), Howdah()):
        await app.enqueue_many([])
        assert await app.admin.list() == []
        await app.close()
    conn = await Database(dsn).connect("test")
    assert await conn.fetchval("select 1") == 1
    await conn.close()


@pytest.mark.parametrize(
    ("dsn", "plain"),
    [
        ("postgres://me:p+x://y@db/app", "postgres://me:p+x://y@db/app"),
        ("postgresql+asyncpg://me:p%40ss@db:5433/app", "postgresql://me:p%40ss@db:5433/app"),
        ("postgresql+psycopg://db/app?sslmode=require", "postgresql://db/app?sslmode=require"),
        ("postgresql+asyncpg://db/app?async_fallback=true", "postgresql://db/app"),
        ("postgresql+asyncpg:///app?host=/run/pg", "postgresql:///app?host=%2Frun%2Fpg"),
    ],
)
def test_the_driver_is_stripped_and_nothing_else(dsn, plain):
    assert plain_dsn(dsn) == plain


@pytest.mark.parametrize(
    ("dsn", "message"),
    [
        ("mysql://me:hunter2@db/app", "not PostgreSQL; write postgresql://"),
        ("sqlite+aiosqlite:///x.db", "not PostgreSQL; write postgresql://"),
        ("host=db password=hunter2", "invalid DSN"),
        ("db/app", "invalid DSN"),
    ],
)
def test_what_is_no_address_of_postgresql_is_rejected_when_the_app_is_made(dsn, message):
    with pytest.raises(ConfigError, match=message) as rejected:
        Howdah(dsn)
    assert "hunter2" not in str(rejected.value)
