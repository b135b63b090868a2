"""What people see of webhooks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from howdah.notices.webhook import KIND, QUEUE
from howdah.pg import sql
from howdah.pg.database import Database


class WebhookRow(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook as workers have declared it."""

    name: str
    host: str
    events: Sequence[str]
    queues: Sequence[str] | None
    """``None``: every queue."""
    kinds: Sequence[str] | None
    stuck_after: float
    seen_age: float
    """Seconds since a worker last said that it knows it."""
    notices: int
    """What has not become a job yet."""
    deliveries: int
    """Jobs that wait for their first, or their next, try."""


async def list_webhooks(database: Database) -> Sequence[WebhookRow]:
    """Every webhook, by name."""
    statement = sql.load("howdah.notices", schema=database.schema)["list"]
    conn = await database.connect("webhooks")
    try:
        return [WebhookRow(**row) for row in await conn.fetch(statement, QUEUE, KIND)]
    finally:
        conn.terminate()
