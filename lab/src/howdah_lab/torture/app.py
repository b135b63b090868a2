"""Application under test: every front, and handlers that record their work in the ledger.

What counts is the effect: a row that is written in the transaction of the job, of the row or of the event. Whatever
happens, there must be one for everything that was accepted, and never two.
"""

from __future__ import annotations

import asyncio
import os
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from howdah import Backoff, Event, Howdah, Transaction, current_job
from howdah.postgres import sql
from howdah_lab.torture import guards
from howdah_lab.torture.ledger import FOLDER, LedgerWriter

SCHEMA_VARIABLE = "HOWDAH_TORTURE_SCHEMA"
"""Environment variable with the schema of the tables under test."""
ATTEMPTS = 100
"""More than anything here is ever interrupted."""
AGAIN = Backoff(first=0.1, factor=2, cap=1)

app = Howdah()


@app.task(queue="jobs", transactional=True, max_attempts=ATTEMPTS, retry=AGAIN)
async def effect(tx: Transaction, mark: int, pause: float) -> None:
    """Writes its effect in the commit of its completion."""
    write("start", "jobs", mark)
    await asyncio.sleep(pause / 2)
    await leave(tx, "jobs", mark)
    await asyncio.sleep(pause / 2)
    write("end", "jobs", mark)


@app.task(queue="jobs", transactional=True, max_attempts=ATTEMPTS, retry=AGAIN)
async def stumble(tx: Transaction, mark: int, pause: float) -> None:
    """Writes its effect and fails, up to twice: what it wrote must be gone."""
    write("start", "jobs", mark)
    fails = current_job().attempt <= mark % 3
    if not (fails and guards.off("transaction")):  # without it that would be two effects, without any fault
        await leave(tx, "jobs", mark)
    await asyncio.sleep(pause)
    if fails:
        raise ValueError("on purpose")
    write("end", "jobs", mark)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN)
async def plain(mark: int, pause: float) -> int:
    """Has no transaction: it is recorded as done once, and runs again only after a lease was lost."""
    write("start", "plain", mark)
    await asyncio.sleep(pause)
    write("end", "plain", mark)
    return mark


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN)
def threaded(mark: int, pause: float) -> None:
    """The same in a thread, and with nothing to say."""
    write("start", "plain", mark)
    write("end", "plain", mark)


@app.task(queue="fleet", max_attempts=ATTEMPTS, retry=AGAIN)
async def remote(mark: int, pause: float) -> int:
    """The same over HTTP: its worker has no database."""
    write("start", "fleet", mark)
    await asyncio.sleep(pause)
    write("end", "fleet", mark)
    return mark


@app.event
class Happened(msgspec.Struct, frozen=True):
    """An event of a stream."""

    mark: int


@app.event
class Ordered(msgspec.Struct, frozen=True):
    """An event for which a consumer enqueues a job."""

    mark: int
    pause: float
    declaration_change: int = 0
    """The newest row of the table ``declaration_change`` that its client had seen before the append."""


@app.consumer("mirror", types=[Happened])
async def mirror(event: Event, tx: Transaction) -> None:
    """One effect for every event, in the commit that moves the checkpoint."""
    write("start", "events", event.data.mark)
    await leave(tx, "events", event.data.mark, stream=event.stream_id, version=event.version)
    write("end", "events", event.data.mark)


@app.consumer("shards", types=[Happened], partitions=3)
async def shards(event: Event, tx: Transaction) -> None:
    """The same, shared out by stream over the nodes."""
    await leave(tx, "shards", event.data.mark, stream=event.stream_id, version=event.version)


@app.consumer("orders", types=[Ordered])
async def orders(event: Event, tx: Transaction) -> None:
    """A job for every event, made in the commit that moves the checkpoint."""
    await effect.using(conn=tx).enqueue(event.data.mark, event.data.pause)


class Row(msgspec.Struct, frozen=True):
    """Columns of a row of the table under test that the handler receives."""

    mark: int
    pause: float


async def work_on(row: Row, tx: Transaction) -> None:
    """The effect and the final state of the row are one commit."""
    write("start", "tables", row.mark)
    await leave(tx, "tables", row.mark)
    await asyncio.sleep(row.pause)
    write("end", "tables", row.mark)


def open_to(run_schema: str, *, stalled_after: float = 4.0) -> None:
    """Work on the table of this schema."""
    if "rows" not in app.tables:
        rows = app.table(
            f"{run_schema}.rows",
            name="rows",
            record=Row,
            order_by=["id"],
            max_attempts=ATTEMPTS,
            max_resets=ATTEMPTS,
            retry_after=0.5,
            stalled_after=stalled_after,
            poll=0.5,
            transactional=True,
        )
        rows.handler(work_on)


async def leave(tx: Transaction, front: str, mark: int, *, stream: str = "", version: int = 0) -> None:
    """Write an effect."""
    job = current_job() if front in ("jobs", "tables") else None
    values = (front, mark, stream, version, job.attempt if job else 0, job.token if job else 0, os.getpid())
    if guards.off("transaction"):
        conn = await asyncpg.connect(app.database.dsn)
        try:
            await conn.execute(_sql()["leave"], *values)
        finally:
            await conn.close()
    else:
        await tx.execute(_sql()["leave"], *values)


def write(what: Any, front: str, mark: int) -> None:
    """Write a line into the ledger."""
    job = current_job() if front != "events" else None
    ledger_writer().write(what, front, mark, attempt=job.attempt if job else 0, token=job.token if job else 0)


@cache
def ledger_writer() -> LedgerWriter:
    """Return the ledger writer of this process."""
    return LedgerWriter(Path(os.environ[FOLDER]))


@cache
def _sql() -> dict[str, str]:
    return sql.load("howdah_lab.torture", schema=app.database.schema, run_schema=os.environ[SCHEMA_VARIABLE])
