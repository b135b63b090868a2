"""The world of rows of a user's table for the explorer: those of ``kit.interleave_rows``, and effects of handlers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from howdah.errors import LeaseLost
from howdah.postgres.database import Database
from kit.interleave import Form
from kit.interleave_rows import FORMS as FIRST_FORMS
from kit.interleave_rows import TOKEN, PreparedRows, acking, prepare

SLOWED = ("public.uploads",)


async def handle(rows: PreparedRows, conn: Any) -> bool:
    """A handler's transaction: its effect and the completion of its row."""
    try:
        async with conn.transaction():
            await conn.execute("insert into effect values (6)")
            if await conn.fetchval(rows.plan.sql["ack_in_transaction"], 6, TOKEN) is None:
                raise LeaseLost
    except LeaseLost:
        return False
    return True


async def release(rows: PreparedRows, conn: Any) -> list[int]:
    return [row["id"] for row in await conn.fetch(rows.plan.sql["release"], [TOKEN], None)]


FORMS = [
    *FIRST_FORMS,
    Form(act="ack", name="one to retry", do=acking({6: ("errored", 60.0)}), skips=True),
    Form(act="ack", name="failed", do=acking({7: ("failed", None), 8: ("failed", None)}), skips=True),
    Form(act="handle", name="", do=handle),
    Form(act="release", name="", do=release, skips=True),
]


@dataclass
class Table:
    """See :class:`PreparedRows`; the same content before every round."""

    name = "rows"
    independent = True
    forms: Sequence[Form] = field(default_factory=lambda: FORMS)
    prepared: PreparedRows | None = None

    @property
    def statements(self) -> Any:
        """Those that the operations send."""
        assert self.ground is not None
        return self.ground.plan.sql

    async def prepare(self, conn: Any, database: Database) -> None:
        """Make the table, and where effects are noted."""
        self.ground = await prepare(conn, database.dsn)
        await conn.execute("grant all on uploads to public")
        await conn.execute("create table effect (id bigint not null); grant all on effect to public")

    async def lay(self, conn: Any, forms: Sequence[Form]) -> PreparedRows:
        assert self.ground is not None
        await conn.execute("delete from effect")
        return await self.ground.lay(conn)

    def excludes(self, forms: Sequence[Form]) -> bool:
        return False

    async def summary(self, conn: Any) -> dict[str, list[Any]]:
        assert self.ground is not None
        effects = await conn.fetch("select id from effect order by id")
        noted = [row["id"] for row in effects]
        return {"rows": [(*row, noted.count(row[0])) for row in await self.ground.portrait(conn)]}

    async def wrongs(self, conn: Any) -> list[str]:
        """No row is in an impossible state, and no effect happened twice."""
        assert self.ground is not None
        twice = await conn.fetch("select id from effect group by id having count(*) > 1")
        return [*await self.ground.wrongs(conn), *(f"row {row['id']} took effect twice" for row in twice)]

    def wrong_answer(self, form: Form, result: Any) -> str | None:
        return None
