"""Why a row of a table is left alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from howdah import Budget, ConfigError, Howdah, Where
from howdah.diagnose.finding import Gate
from howdah.errors import HowdahError
from howdah.table.options import TableOptions
from kit.node import eventually, node
from table.ddl import ddl

pytestmark = pytest.mark.anyio

OPTIONS = TableOptions(table="uploads", stalled_after=30, max_attempts=3)


@pytest.fixture
async def uploads(conn: Any, app: Howdah) -> AsyncIterator[Any]:
    """A table with one row, and a node that is said to work on it."""
    await conn.execute(ddl(extra="size int not null default 1"))
    await conn.execute("insert into uploads default values")
    await conn.execute("insert into howdah.node (name, kinds, slots) values ('web:7', '{uploads}', 5)")
    yield conn
    await app.close()


async def ask(app: Howdah, options: TableOptions = OPTIONS, id: Any = 1) -> dict[str, Gate]:
    return {gate.name: gate for gate in await app.why.row(options, id)}


async def closed(app: Howdah, options: TableOptions = OPTIONS) -> list[str]:
    return [gate.name for gate in (await ask(app, options)).values() if not gate.open]


async def test_a_row_that_can_be_claimed(app: Howdah, uploads: Any) -> None:
    gates = await ask(app)

    assert all(gate.open for gate in gates.values())
    assert list(gates) == ["node", "due", "cancel"]
    assert gates["node"].fact == "node 1 (web:7) processes table uploads"


async def test_no_live_node_has_the_table(app: Howdah, uploads: Any) -> None:
    await uploads.execute("update howdah.node set kinds = '{}'")
    assert (await ask(app))["node"].fact == "none of 1 live nodes processes table uploads"
    await uploads.execute("update howdah.node set tables = '{uploads}', remote = true")
    assert await closed(app) == []
    await uploads.execute("update howdah.node set leaving = true")
    assert (await ask(app))["node"].fact == "all nodes that process table uploads are draining: node 1 (web:7)"


async def test_not_due_and_waiting_to_retry(app: Howdah, uploads: Any) -> None:
    await uploads.execute("update uploads set process_after = now() + interval '2 hours'")
    assert (await ask(app))["due"].fact.endswith("Z (in 2 h)")
    assert await closed(app) == ["due"]
    await uploads.execute("update uploads set state = 'errored', num_failures = 1, failure_message = E'no\\ndisk'")
    assert await closed(app) == ["retry"]
    assert (await ask(app))["retry"].fact.endswith("(in 2 h); 1 of 3 attempts failed: no disk")


async def test_cancelled_by_its_flag(app: Howdah, uploads: Any) -> None:
    await uploads.execute("update uploads set cancel = true")

    assert await closed(app) == ["cancel"]


async def test_it_does_not_meet_the_condition_of_the_table(app: Howdah, uploads: Any) -> None:
    small = TableOptions(table="uploads", where=Where("size < $1", 10))
    assert (await ask(app, small))["where"].fact == "it meets the condition of the table: size < $1"
    await uploads.execute("update uploads set size = 10")

    assert await closed(app, small) == ["where"]
    assert (await ask(app, small))["where"].fact == "it does not meet the condition of the table: size < $1"


async def test_it_needs_more_than_the_whole_budget(app: Howdah, uploads: Any) -> None:
    tight = TableOptions(table="uploads", budget=Budget(memory=8, cost={"memory": "size"}))
    assert (await ask(app, tight))["budget"].fact == "it needs 1 of 8 memory; only its worker knows how much is free"
    await uploads.execute("update uploads set size = 9")

    assert await closed(app, tight) == ["budget"]
    assert (await ask(app, tight))["budget"].fact == "it needs 9 of 8 memory, more than the whole budget"


async def test_somebody_works_on_it_and_is_it_alive(app: Howdah, uploads: Any) -> None:
    await uploads.execute(
        "update uploads set state = 'processing', started_at = now(), last_heartbeat_at = now(),"
        " worker_hostname = 'web:7'"
    )
    [lease] = (await ask(app)).values()
    assert (lease.name, lease.open) == ("lease", False)
    assert lease.fact.startswith("web:7 processes it since 20")
    assert ", and sent a heartbeat " in lease.fact

    await uploads.execute("update uploads set last_heartbeat_at = now() - interval '50 seconds'")
    [stalled] = (await ask(app)).values()
    assert stalled.fact.endswith("but has sent no heartbeat for 50 s, longer than stalled_after (30 s)")
    assert stalled.fix == "start a worker with this table: its maintenance loop resets the row"


async def test_a_row_that_is_over(app: Howdah, uploads: Any) -> None:
    await uploads.execute("update uploads set state = 'failed', finished_at = now(), failure_message = 'no disk'")

    [over] = (await ask(app)).values()
    assert over.fact.startswith("it is failed since 20")
    assert over.fact.endswith(": no disk")
    assert over.fix == "howdah table requeue uploads 1"


@pytest.mark.parametrize("id", [2, 10**30, "7"], ids=str)
async def test_there_is_no_such_row(app: Howdah, uploads: Any, id: Any) -> None:
    with pytest.raises(HowdahError, match=f"table public.uploads has no row {id}; it was never inserted, or"):
        await app.why.row(OPTIONS, id)


async def test_an_id_that_cannot_be_one(app: Howdah, uploads: Any) -> None:
    with pytest.raises(ConfigError, match=r"'seven' is not an id of table public\.uploads; its ids are numbers"):
        await app.why.row(OPTIONS, "seven")


async def test_it_agrees_with_a_real_worker(app: Howdah, conn: Any) -> None:
    await conn.execute(ddl())
    table = app.table("uploads", poll=0.1)

    @table.handler
    async def handle(upload: dict[str, Any]) -> None: ...

    async def over() -> bool:
        return await closed(app, table.options) == ["over"]

    await conn.execute("insert into uploads (cancel) values (true)")
    assert "cancel" in await closed(app, table.options)
    async with node(app):
        await eventually(over)  # whoever works on the table ends what nobody wants
        await conn.execute("insert into uploads default values")
        await eventually(lambda: conn.fetchval("select state = 'completed' from uploads where id = 2"))
        assert [gate.name for gate in (await ask(app, table.options, 2)).values()] == ["over"]
    await app.close()
