"""Databases with a long history of jobs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import sql as names

from howdah.postgres.database import Database
from kit.job_history import FILL, StatementMeter

UNATTENDED = """
do $$
declare
    name regclass;
begin
    for name in select oid from pg_class where relnamespace = 'howdah'::regnamespace and relkind = 'r' loop
        execute format('alter table %s set (autovacuum_enabled = off)', name);
    end loop;
end $$
"""
"""Nobody refreshes the statistics meanwhile."""


@pytest.fixture(scope="package")
def histories(server: Any, template: str) -> Iterator[dict[str, Database]]:
    """The same history twice: with true statistics, and with those of the empty tables."""
    stale, analyzed = (f"howdah_{statistics}_{os.getpid()}" for statistics in ("stale", "analyzed"))
    create = names.SQL("create database {} template {}")
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        conn.execute(create.format(names.Identifier(stale), names.Identifier(template)))
        with psycopg.connect(server.dsn_for(stale), autocommit=True) as fill:
            fill.execute(UNATTENDED)
            fill.execute("analyze")
            fill.execute(FILL)
        conn.execute(create.format(names.Identifier(analyzed), names.Identifier(stale)))
        with psycopg.connect(server.dsn_for(analyzed), autocommit=True) as fill:
            fill.execute("vacuum analyze")
        yield {"stale": Database(server.dsn_for(stale)), "analyzed": Database(server.dsn_for(analyzed))}
        for name in (stale, analyzed):
            conn.execute(names.SQL("drop database {} with (force)").format(names.Identifier(name)))


@pytest.fixture(params=["analyzed", "stale"])
def history(histories: dict[str, Database], request: pytest.FixtureRequest) -> Database:
    return histories[request.param]


@pytest.fixture(params=["our settings", "server defaults"])
async def measure(history: Database, request: pytest.FixtureRequest) -> AsyncIterator[StatementMeter]:
    """Looks at statements as nodes run them, without a thought of their arguments, and as they run behind a pooler."""
    if request.param == "our settings":
        conn = await history.connect("plans")
    else:
        conn = await asyncpg.connect(history.dsn, statement_cache_size=0)
        await conn.execute("set plan_cache_mode = force_custom_plan")
    yield StatementMeter(conn)
    await conn.close()
