"""Bulk: many jobs by COPY, in one transaction, as few runs as possible."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

from howdah.jobs.lot import Lot
from howdah.jobs.new import Enqueued, NewJob
from howdah.pg.database import columns
from howdah.pg.sql import render

CHUNK = 2500
STEP = 250
"""Jobs that are made before what is on its way is looked after."""


class Bulk:
    """Enqueues many jobs through one connection, whatever codecs its owner has set on it."""

    def __init__(self, schema: str, sql: Mapping[str, str]) -> None:
        self._schema = schema
        self._sql = sql
        self._reserve = render("select lo, hi, clock_timestamp() as now from {schema}.reserve($1)", {"schema": schema})

    async def enqueue(self, conn: Any, jobs: Iterable[NewJob], patience: str | None = None) -> list[Enqueued]:
        """Enqueue all of them or none; returns what became of each, in order.

        ``patience``: the ``lock_timeout`` for a key that another open transaction holds; the caller's own if ``None``.
        """
        made: list[Enqueued] = []
        rest = iter(jobs)
        chunk = list(islice(rest, CHUNK))
        async with conn.transaction():
            while len(chunk) == CHUNK:
                sending = asyncio.create_task(self._send(conn, Lot(chunk), patience))
                try:
                    chunk = await _more(rest)  # made while the server is at work
                except BaseException:
                    sending.cancel()
                    await asyncio.wait([sending])
                    raise
                made += await sending
            if chunk:
                made += await self._send(conn, Lot(chunk), patience)
        return made

    async def _send(self, conn: Any, lot: Lot, patience: str | None) -> list[Enqueued]:
        spans = await conn.fetch(self._reserve, lot.size)
        lot.number([*chain.from_iterable(range(span["lo"], span["hi"]) for span in spans)], spans[0]["now"])
        await self._take_keys(conn, lot, patience)
        if lot.size:
            await conn.copy_to_table(
                "job", schema_name=self._schema, source=_as_sent(lot.lines()), columns=lot.columns(), format="text"
            )
        await conn.fetchval(self._sql["runs"], *columns([*lot.ready()], 5), *columns([*lot.later()], 5))
        return lot.made()

    async def _take_keys(self, conn: Any, lot: Lot, patience: str | None) -> None:
        keys = lot.keys()
        if keys:
            rows = await conn.fetch(self._sql["keys"], list(keys.values()), list(keys), patience)
            if taken := {row["id"]: row["holder"] for row in rows if row["id"] != row["holder"]}:
                lot.leave_out(taken)


async def _as_sent(lines: Iterable[bytes]) -> AsyncIterator[bytes]:
    for some in lines:
        yield some
        await asyncio.sleep(0)  # they are on their way before the next are written


async def _more(rest: Iterator[NewJob]) -> list[NewJob]:
    """The next chunk, taken in steps, so that the one before it is sent meanwhile."""
    chunk: list[NewJob] = []
    while len(chunk) < CHUNK and (some := list(islice(rest, STEP))):
        chunk += some
        await asyncio.sleep(0)
    return chunk
