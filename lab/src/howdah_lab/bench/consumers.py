"""The consumers that are measured, each in an application of its own, so that a node has one of them only."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from howdah import Event, Howdah, Transaction
from howdah.postgres import sql
from howdah_lab.bench.app import SCHEMA, delays, unsettled
from howdah_lab.bench.events import Placed, Probe

CONSUMER = "bench"
"""Name of all of them: they take turns on one checkpoint."""

APPS: dict[str, Howdah] = {}
"""By the name of the handler and the size of its batches."""

H = TypeVar("H", bound=Callable[..., Any])


def _consumer(*batches: int) -> Callable[[H], H]:
    """Make a handler the only consumer of an application, once for each size of batches."""

    def register(handler: H) -> H:
        for batch in batches:
            app = APPS[f"{handler.__name__}_{batch}"] = Howdah(schema=SCHEMA)
            app.event(Placed)
            app.event(Probe)
            app.consumer(CONSUMER, batch=batch)(handler)
        return handler

    return register


@_consumer(1, 100, 1000)
async def nothing(event: Event) -> None:
    """One event at a time."""


@_consumer(100, 1000)
async def nothing_at_once(events: list[Event]) -> None:
    """All events of a batch."""


@_consumer(100, 1000)
async def upsert(event: Event, tx: Transaction) -> None:
    """Decode one event and upsert one row."""
    await tx.execute(_statements()["upsert_one"], event.data.user_id, event.data.email)


@_consumer(1000)
async def upsert_at_once(events: list[Event], tx: Transaction) -> None:
    """Decode all events of a batch and upsert their rows in one statement."""
    rows: list[Placed] = [event.data for event in events]
    await tx.execute(_statements()["upsert_many"], [row.user_id for row in rows], [row.email for row in rows])


@_consumer(100)
async def probe(event: Event) -> None:
    """Records the delay from the append call to its start."""
    delays.append(time.monotonic() - event.data.began)
    unsettled.append(event.data.began)


@cache
def _statements() -> dict[str, str]:
    return sql.load("howdah_lab.bench", schema=APPS["upsert_100"].database.schema)
