"""Webhooks of an application, and the loops of a node that declare them, relay notices to jobs and watch queues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Unpack

import msgspec

from howdah import telemetry
from howdah.errors import ConfigError
from howdah.handler import Handler
from howdah.loops import every
from howdah.postgres import sql
from howdah.postgres.database import Database, Session
from howdah.postgres.sql import columns
from howdah.webhooks.delivery import ATTEMPTS, JOB_TIMEOUT, WebhookSender
from howdah.webhooks.webhook import CALLS_PER_WEBHOOK, KIND, MAX_EXTRA_SLOTS, QUEUE, Webhook, WebhookSettings
from howdah.worker.options import WorkerOptions


class Webhooks(Mapping[str, Webhook]):
    """The webhooks of an application, by name. ``add_handler``: adds the handler of deliveries to its tasks."""

    def __init__(self, add_handler: Callable[[Handler], object]) -> None:
        self._add_handler = add_handler
        self._known: dict[str, Webhook] = {}

    def add(self, url: str, **settings: Unpack[WebhookSettings]) -> Webhook:
        """Add a webhook: ``app.webhook("https://hooks.example.com/7", on=["job.failed"], secret=…)``."""
        made = Webhook(url=url, **settings)
        if made.name in self._known:
            raise ConfigError(f"two webhooks are named {made.name!r}; give one of them name=…")
        self.put([made])
        return made

    def put(self, webhooks: Iterable[Webhook]) -> None:
        """Add webhooks, each replacing one of the same name."""
        for each in webhooks:
            self._known[each.name] = each
            self._add_handler(WebhookSender(each).handler())

    def serving(self, options: WorkerOptions) -> WorkerOptions:
        """Return the options with the queue of deliveries added, and its concurrency limited."""
        if not self._known:
            return options
        limit = CALLS_PER_WEBHOOK + min(len(self._known) - 1, MAX_EXTRA_SLOTS)
        queues = options.queues if options.queues is None else {QUEUE: None, **options.queues}
        return replace(options, queues=queues, limits={QUEUE: limit, **options.limits})

    def relay(self, database: Database) -> Relay | None:
        """Return the loops that a node runs for the webhooks, if there are any."""
        return Relay(database, self._known) if self._known else None

    def __getitem__(self, name: str) -> Webhook:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class WebhookRow(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook, as nodes have declared it."""

    name: str
    host: str
    events: Sequence[str]
    queues: Sequence[str] | None
    """``None``: every queue."""
    kinds: Sequence[str] | None
    stuck_after: float
    seen_age: float
    """Seconds since a node last declared it."""
    notices: int
    """Notices without a delivery job so far."""
    deliveries: int
    """Delivery jobs that wait for their first attempt or a retry."""


async def list_webhooks(database: Database) -> Sequence[WebhookRow]:
    """Return all declared webhooks, by name."""
    statement = sql.load("howdah.webhooks", schema=database.schema)["list"]
    conn = await database.connect("webhooks")
    try:
        return [WebhookRow(**row) for row in await conn.fetch(statement, QUEUE, KIND)]
    finally:
        conn.terminate()


log = logging.getLogger("howdah")

RELAY_EVERY = 1.0
WATCH_EVERY = 10.0
DECLARE_EVERY = 60.0
MAX_QUEUED = 100
"""Queued deliveries of one webhook; its further notices wait in their table."""
MAX_RETRIED = 1000
"""Deliveries of one webhook that wait for a retry; beyond, its further notices wait as well."""
RETENTION = 7 * 86400.0
"""Seconds after which undelivered notices, and webhooks that no node declares, are deleted."""
MAX_WAITING = 10_000
"""Waiting notices of one webhook; beyond, the oldest are dropped with a warning."""


class Relay:
    """The webhook loops of one node. Safe on every node at once."""

    def __init__(self, database: Database, webhooks: Mapping[str, Webhook]) -> None:
        self._webhooks = webhooks
        self._session = Session(database, "notices")
        self._sql = sql.load("howdah.webhooks", schema=database.schema)
        self._since: dict[str, datetime] = {}
        """When each declaration was first made, by the server's clock, as known since the start."""
        self._superseded: set[str] = set()
        """Webhooks for which a warning was logged that another declaration is current."""

    async def run(self, stop: asyncio.Event) -> None:
        """Run the loops until ``stop``."""
        try:
            async with asyncio.TaskGroup() as loops:
                loops.create_task(every(DECLARE_EVERY, self.declare, name="webhooks", stop=stop))
                loops.create_task(every(RELAY_EVERY, self.relay, name="notices", stop=stop))
                loops.create_task(every(WATCH_EVERY, self.watch, name="watch of queues", stop=stop))
        finally:
            await self._session.close()

    async def declare(self) -> None:
        """Declare the webhooks in the database and delete what is older than ``RETENTION``."""
        for each in self._webhooks.values():
            given = (each.name, each.host, list(each.on), each.queues, each.kinds, each.stuck_after)
            row = await self._session.fetchrow(self._sql["declare"], *given, self._since.get(each.name))
            self._since[each.name] = row["since"]
            self._compare(each.name, bool(row["current"]))
        dropped = await self._session.fetchval(self._sql["prune"], RETENTION, MAX_WAITING)
        if dropped:
            log.warning("%d notices were dropped: too old, or too many for their webhook", dropped)
            telemetry.emit("notice.drop", notices=dropped)

    def _compare(self, name: str, current: bool) -> None:
        """Warn once when another declaration of a webhook is current."""
        if current:
            self._superseded.discard(name)
        elif name not in self._superseded:
            self._superseded.add(name)
            log.warning(
                "webhook %r is declared with other events, queues, kinds, host or stuck_after by newer nodes, and their"
                " declaration counts; finish the roll-out, or give one of the two another name",
                name,
            )

    async def relay(self) -> int:
        """Turn notices into delivery jobs; return their number. A notice is deleted in the commit that adds its job."""
        kinds = columns([(each.name, each.kind) for each in self._webhooks.values()], 2)
        given = (*kinds, QUEUE, ATTEMPTS, JOB_TIMEOUT, MAX_QUEUED, MAX_RETRIED)
        relayed = int(await self._session.fetchval(self._sql["relay"], *given))
        if relayed:
            telemetry.emit("notice.relay", notices=relayed)
        return relayed

    async def watch(self) -> int:
        """Detect stuck queues; return the number of notices written."""
        return int(await self._session.fetchval(self._sql["watch"]))

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()
