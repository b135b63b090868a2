"""Relay: declares webhooks, turns notices into jobs that deliver them, and looks for queues that are stuck."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime

from howdah import telemetry
from howdah.notices.delivery import ATTEMPTS, TIMEOUT
from howdah.notices.webhook import QUEUE, Webhook
from howdah.pg import sql
from howdah.pg.database import Database, Session, columns
from howdah.service import every

log = logging.getLogger("howdah")

RELAY_EVERY = 1.0
WATCH_EVERY = 10.0
DECLARE_EVERY = 60.0
MOST_AT_ONCE = 100
"""Deliveries of one webhook that wait for their start; its further notices stay notices meanwhile."""
MOST_RETRIED = 1000
"""Deliveries of one webhook that wait for their next try, likewise."""
KEEP = 7 * 86400.0
"""Seconds after which a notice nobody could deliver, and a webhook no node knows, are forgotten."""
MOST_WAITING = 10_000
"""Notices of one webhook; of more the oldest are dropped, and that is said."""


class Relay:
    """The loops of one node that knows webhooks. Safe on every node at once."""

    def __init__(self, database: Database, webhooks: Mapping[str, Webhook]) -> None:
        self._webhooks = webhooks
        self._session = Session(database, "notices")
        self._sql = sql.load("howdah.notices", schema=database.schema)
        self._since: dict[str, datetime] = {}
        """When each declaration was first declared, as the server told after the start."""
        self._others: set[str] = set()
        """Webhooks of which another declaration counts, as a warning was logged."""

    async def run(self, stop: asyncio.Event) -> None:
        """Tell until ``stop``."""
        try:
            async with asyncio.TaskGroup() as loops:
                loops.create_task(every(DECLARE_EVERY, self.declare, name="webhooks", stop=stop))
                loops.create_task(every(RELAY_EVERY, self.relay, name="notices", stop=stop))
                loops.create_task(every(WATCH_EVERY, self.watch, name="watch of queues", stop=stop))
        finally:
            await self._session.close()

    async def declare(self) -> None:
        """Say which webhooks there are, and forget what is past its time."""
        for each in self._webhooks.values():
            given = (each.name, each.host, list(each.on), each.queues, each.kinds, each.stuck_after)
            row = await self._session.fetchrow(self._sql["declare"], *given, self._since.get(each.name))
            self._since[each.name] = row["since"]
            self._compare(each.name, bool(row["current"]))
        dropped = await self._session.fetchval(self._sql["forget"], KEEP, MOST_WAITING)
        if dropped:
            log.warning("%d notices were dropped: too old, or too many for their webhook", dropped)
            telemetry.emit("notice.drop", notices=dropped)

    def _compare(self, name: str, current: bool) -> None:
        """Warn once when another declaration of a webhook counts."""
        if current:
            self._others.discard(name)
        elif name not in self._others:
            self._others.add(name)
            log.warning(
                "webhook %r is declared with other events, queues, kinds, host or stuck_after by newer nodes, and their"
                " declaration counts; finish the roll-out, or give one of the two another name",
                name,
            )

    async def relay(self) -> int:
        """Notices become jobs, each once: its deletion and its job are one commit. Returns how many did."""
        kinds = columns([(each.name, each.kind) for each in self._webhooks.values()], 2)
        given = (*kinds, QUEUE, ATTEMPTS, TIMEOUT, MOST_AT_ONCE, MOST_RETRIED)
        relayed = int(await self._session.fetchval(self._sql["relay"], *given))
        if relayed:
            telemetry.emit("notice.relay", notices=relayed)
        return relayed

    async def watch(self) -> int:
        """Look for queues in which nothing moves; returns how many webhooks were told of one."""
        return int(await self._session.fetchval(self._sql["watch"]))

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()
