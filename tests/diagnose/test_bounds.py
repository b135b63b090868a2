"""What is asked of the database is bounded; a schema, or an id, that nobody knows."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from howdah import Howdah
from howdah.diagnose import why as room
from howdah.errors import HowdahError
from howdah.postgres.database import Database

pytestmark = pytest.mark.anyio


@pytest.fixture
def send(app: Howdah) -> Any:
    @app.task(queue="mail")
    async def send() -> None: ...

    return send


async def test_another_version_of_the_schema(app: Howdah, send: Any, conn: Any) -> None:
    made = await send.enqueue()
    needed = await conn.fetchval("select max(number) from howdah.migration")
    await conn.execute("delete from howdah.migration where number = $1", needed)
    [old] = await app.why.job(made.id)
    assert (old.name, old.open) == ("schema", False)
    assert old.fact.endswith(f"this code needs {needed}, so no worker with this code starts")
    assert old.fix == "run `howdah migrate`"

    await conn.execute("insert into howdah.migration (number, name, checksum) values (999, 'x', 'x')")
    [new] = await app.why.job(made.id)
    assert "is at version 999, this code knows only" in new.fact
    await app.close()


async def test_nodes_of_another_version(app: Howdah, send: Any, ask: Any, conn: Any) -> None:
    made = await send.enqueue()
    await conn.execute("insert into howdah.node (name, kinds, slots, version) values ('old:1', '{send}', 5, '0.0.1')")

    gate = (await ask(made.id))["schema"]
    assert gate.open
    assert gate.fact.startswith("nodes of another version claim jobs: node 1 (old:1) is 0.0.1; this is ")


async def test_there_is_no_such_job(app: Howdah, direct: Database) -> None:
    with pytest.raises(HowdahError, match="there is no job 7; no job has had this id yet"):
        await app.why.job(7)
    other = await asyncpg.connect(direct.dsn)
    begun = other.transaction()
    await begun.start()
    made = await other.fetchval("select id from howdah.enqueue('send')")
    with pytest.raises(HowdahError, match=f"there is no job {made}; the transaction that enqueued it is open or was"):
        await app.why.job(made)
    for absurd in (0, -1, 2**63 - 1, 2**70):
        with pytest.raises(HowdahError, match="there is no job"):
            await app.why.job(absurd)
    await begun.rollback()
    await other.close()
    await app.close()


async def test_a_look_that_takes_too_long_is_given_up(
    app: Howdah, send: Any, direct: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "QUERY_TIMEOUT", 0.2)
    made = await send.enqueue()
    other = await asyncpg.connect(direct.dsn)
    begun = other.transaction()
    await begun.start()
    await other.execute("lock table howdah.ready in access exclusive mode")

    with pytest.raises(HowdahError, match=r"the query took longer than 0\.2 s and was cancelled"):
        await asyncio.wait_for(app.why.job(made.id), 30)

    await begun.rollback()
    await other.close()
    await app.close()


async def test_of_too_many_nodes_the_newest_are_looked_at(app: Howdah, send: Any, conn: Any, monkeypatch: Any) -> None:
    """Whatever their ids: those are random."""
    made = await send.enqueue()
    await conn.execute(
        """insert into howdah.node (id, name, kinds, slots, started_at)
        values (2000000001, 'old:1', '{other}', 5, now() - interval '1 hour'),
            (1500000001, 'new:2', '{other}', 5, now())"""
    )
    monkeypatch.setattr(room, "MOST_NODES", 1)
    facts = " ".join(gate.fact for gate in await app.why.job(made.id))
    assert "new:2" in facts
    assert "old:1" not in facts
    await app.close()


async def test_many_nodes_and_long_texts_stay_short(app: Howdah, send: Any, ask: Any, conn: Any) -> None:
    made = await send.enqueue()
    await conn.execute(
        "insert into howdah.node (name, kinds, slots) select 'web:' || i, '{other}', 5 from generate_series(1, 50) i"
    )
    await app.admin.pause("mail", "x" * 5000)

    gates = await ask(made.id)
    assert gates["node"].fact.endswith("; and 45 more nodes")
    assert all(len(gate.fact) < 1000 for gate in gates.values())
