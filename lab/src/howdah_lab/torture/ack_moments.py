"""Moments right after the server has acknowledged something, detected by the proxy."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import asyncpg

from howdah.postgres.database import BROKEN
from howdah_lab.torture.context import RunContext
from howdah_lab.torture.proxy import ALONE

CLAIM = "-- claim:"
MOST_WAITED = 10.0
"""Seconds after which the moment counts as come although nothing of the kind was answered."""


@dataclass(frozen=True, slots=True)
class AckMoment:
    """An answer to one kind of connection."""

    about: str
    """Description of the acknowledged act; continues "right after …"."""
    role: str
    by: str = ""
    """Whose connections: empty for workers with a database, ``plane`` for the control plane, ``load`` for clients."""
    statement: str = ""
    """Start of a statement of the transaction; empty: any."""

    async def comes(self, context: RunContext, *, crash: bool = False) -> None:
        """Wait for it. ``crash``: if it is a claim, a crash makes the server forget that it gave out its token, too."""
        conn = await asyncpg.connect(context.server.direct, timeout=10, command_timeout=10)

        async def log_token() -> None:
            with suppress(*BROKEN, asyncpg.PostgresError):
                await conn.execute(context.sql["log_token"], timeout=ALONE / 2)

        try:
            async with asyncio.timeout(MOST_WAITED):
                # only before claims: it flushes all that was committed before it
                first = log_token if crash and self.statement == CLAIM else None
                await context.proxy.answered(self.role, by=self.by, statement=self.statement, first=first)
        except TimeoutError:
            context.log(f"{self.about}: nothing of the kind in {MOST_WAITED:g} s")
        finally:
            conn.terminate()


ROWS_RECORDED = AckMoment(
    "outcomes of table rows were recorded", "ack", statement="-- ack: record the outcomes of attempts"
)
ROW_COMMITTED = AckMoment("a handler committed with its table row", "pool", statement="-- ack_in_transaction:")
"""The two ways in which a row ends: apart from its handler, and in its transaction."""

MOMENTS = {
    "claim": AckMoment("a claim of jobs", "claim", statement=CLAIM),
    "ack": AckMoment("outcomes were recorded", "ack"),
    "pool": AckMoment("a handler or consumer committed", "pool"),
    "heartbeat": AckMoment("a heartbeat", "heartbeat"),
    "append": AckMoment("a client appended events", "client", by="load", statement="-- append:"),
    "checkpoint": AckMoment("a consumer moved its checkpoint", "pool", statement="-- move_checkpoint:"),
    "rows": AckMoment("a claim of table rows", "claim rows", statement=CLAIM),
    "fleet-claim": AckMoment("the control plane claimed jobs for a worker", "claim", by="plane", statement=CLAIM),
    "fleet-ack": AckMoment("the control plane recorded outcomes of a worker", "ack", by="plane", statement="-- ack"),
}
