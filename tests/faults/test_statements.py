"""Every statement of the torture runs on the tables it stands on, and leaves nothing behind."""

from __future__ import annotations

import pytest

from howdah.postgres import sql

pytestmark = pytest.mark.anyio

STATEMENTS = sql.load("howdah_lab.torture", schema="howdah", run_schema="torture")
SCRIPTS = [name for name in STATEMENTS if name in ("open", "clear") or name.startswith("without_")]


async def test_statements_prepare(conn):
    await conn.execute(STATEMENTS["open"])
    for name, statement in STATEMENTS.items():
        if name not in SCRIPTS:
            await conn.prepare(statement)


@pytest.mark.parametrize("script", [name for name in sorted(SCRIPTS) if name != "open"])
async def test_scripts_run(conn, script):
    assert not await conn.fetchval(STATEMENTS["taken"].replace("'howdah'", "'nobody'"))
    await conn.execute(STATEMENTS["open"])
    assert await conn.fetchval(STATEMENTS["taken"])
    await conn.execute(STATEMENTS[script])
    assert await conn.fetchval(STATEMENTS["taken"]) == (script != "clear")


@pytest.mark.parametrize("script", [name for name in sorted(SCRIPTS) if name.startswith("without_")])
async def test_a_guard_is_replaced_and_not_overloaded(conn, script):
    """A function with other parameters would stand beside the one that is to be switched off."""
    functions = "select count(*) from pg_proc where pronamespace = 'howdah'::regnamespace"
    before = await conn.fetchval(functions)

    await conn.execute(STATEMENTS["open"])
    await conn.execute(STATEMENTS[script])

    assert await conn.fetchval(functions) == before
