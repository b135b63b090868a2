"""Tables to work on."""

from __future__ import annotations

from typing import Any

import pytest

from howdah.table.plan import TablePlan
from howdah.table.store import TableStore
from table.ddl import ddl


@pytest.fixture
async def uploads(conn: Any) -> Any:
    """A table with some columns of its own."""
    await conn.execute(ddl(extra="n int, size_mb int, kind text default 'zip', priority int not null default 0"))
    return conn


@pytest.fixture
async def rows(conn: Any) -> Any:
    """Insert rows numbered from 1, and look at them."""

    class Rows:
        async def add(self, count: int = 1, **facts: Any) -> None:
            names = "".join(f", {name}" for name in facts)
            values = "".join(f", ${at}" for at in range(2, len(facts) + 2))
            await conn.execute(
                f"insert into uploads (n{names}) select i{values} from generate_series(1, $1::int) i",
                count,
                *facts.values(),
            )

        async def states(self) -> list[str]:
            return [row["state"] for row in await conn.fetch("select state from uploads order by id")]

        async def one(self, id: Any = 1) -> Any:
            return await conn.fetchrow("select * from uploads where id = $1", id)

        async def set(self, id: Any = 1, **facts: Any) -> None:
            sets = ", ".join(f"{name} = ${at}" for at, name in enumerate(facts, 2))
            await conn.execute(f"update uploads set {sets} where id = $1", id, *facts.values())

        async def silence(self) -> None:
            """Mark every worker as gone, as the control plane does: rows are reset at the next look."""
            await conn.execute("update uploads set last_heartbeat_at = 'epoch' where state = 'processing'")

    return Rows()


@pytest.fixture
async def store_for(database: Any, conn: Any) -> Any:
    """Stores of nodes that only do what the test says."""
    pool = await database.pool(2)
    stores = []

    async def make(table: Any) -> TableStore:
        plan = await TablePlan.make(conn, table.options, "howdah")
        store = TableStore(database, plan, pool=pool)
        stores.append(store)
        return store

    yield make
    for store in stores:
        await store.close()
    pool.terminate()
