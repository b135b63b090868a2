"""The consumers of one node: starts and stops partition consumers as the leader assigns partitions."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from howdah.errors import DatabaseUnreachable
from howdah.events.consumer import Consumer
from howdah.events.dispatcher import Dispatcher
from howdah.events.event import Decoder
from howdah.events.leader import AdvisoryLeadership, Leader, Leadership, LeaseLeadership
from howdah.events.partition import Partition
from howdah.events.partition_consumer import PartitionConsumer
from howdah.loops import Outage, wait_any
from howdah.node.registry import DatabaseContext
from howdah.postgres import sql
from howdah.postgres.database import Session
from howdah.postgres.listen import Listener

log = logging.getLogger("howdah")

SYNC = 2.0
"""Seconds between reads of the partitions this node owns, without a wake-up."""
MOST_CONNECTIONS = 20
IDLE = 0.8
"""Fraction of the lease after which the server ends a batch whose client is idle."""


class NodeConsumers:
    """Runs the partitions that this node owns, and the leader if this node is elected."""

    def __init__(self, consumers: Mapping[str, Consumer], decoder: Decoder, context: DatabaseContext) -> None:
        self._drain_group = context.drain_group
        self._progress = 0
        self._consumers = consumers
        self._decoder = decoder
        self._context = context
        self._options = context.options
        self._sql = sql.load("howdah.events", schema=context.database.schema)
        self._session = Session(context.database, "consumers")
        self._listener = (
            Listener(context.database, channel(context.database.schema), self._on_notify)
            if self._options.notify
            else None
        )
        self._dispatcher = Dispatcher(context.database, interval=self._options.dispatch, listening=self._listening)
        self._runners: dict[tuple[str, int], tuple[PartitionConsumer, asyncio.Task[None]]] = {}
        self._declared: dict[str, str] = {}
        """The digest of each consumer's filter."""
        self._declared_in: int | None = None
        """The run of the server in which these declarations were last written."""
        self._pool: Any = None
        self._lead_now = asyncio.Event()
        self._sync_now = asyncio.Event()
        self._stopping = asyncio.Event()
        self._over = asyncio.Event()
        self._now = self._resigned = False
        self._failure: BaseException | None = None
        self.leader: Leader | None = None

    @property
    def wakeups_lost(self) -> bool:
        """True if the node listens for wake-ups and they do not arrive."""
        return self._listener is not None and self._listener.reported

    @property
    def runners(self) -> list[PartitionConsumer]:
        """The partition consumers that run here now."""
        return [runner for runner, _ in self._runners.values()]

    @property
    def leads(self) -> bool | None:
        """True if this node is the leader; ``None`` before :meth:`open`."""
        return self.leader.leads if self.leader else None

    def stop(self, *, now: bool = False) -> None:
        """Finish the running batches; ``now``: roll them back."""
        self._stopping.set()
        if now:
            self._now = True
            for runner, task in self._runners.values():
                runner.cut(task)

    async def open(self) -> None:
        """Declare the consumers in the database, and this node as one that runs them."""
        options, database = self._options, self._context.database
        size = min(MOST_CONNECTIONS, 2 * sum(each.options.partitions for each in self._consumers.values()) + 1)
        await self._declare(self._consumers)
        self._pool = await database.pool(size, command_timeout=None)  # Last: a repeated start would open a second one.
        leadership: Leadership = (
            LeaseLeadership(
                self._session, self._sql, self._context.node, lease=3 * options.rebalance, dead=options.lease
            )
            if options.leader == "lease"
            else AdvisoryLeadership(database, self._sql, self._context.node, lease=3 * options.rebalance)
        )
        self.leader = Leader(database, self._session, leadership, self._context.node, dead=options.lease)

    async def run(self) -> None:
        """Consume until :meth:`stop` (with ``--drain``: until everything here has caught up)."""
        beside = [
            asyncio.create_task(self._dispatcher.run(self._over), name="howdah frontier"),
            asyncio.create_task(self._lead(), name="howdah leader"),
        ]
        if self._listener:
            beside.append(asyncio.create_task(self._listener.run(self._over), name="howdah listen log"))
        try:
            await self._sync_until_stopped()
        finally:
            self._stopping.set()
            await self._finish()
            self._over.set()
            await asyncio.gather(*beside, return_exceptions=True)
            await self._resign()  # Now, not after the last job of this node has finished.
            self._drain_group.leave(self)

    async def close(self) -> None:
        """Release the owned partitions and close the connections."""
        await self._resign()
        await self._session.close()
        if self._pool:
            self._pool.terminate()

    async def _resign(self) -> None:
        """Release the owned partitions, so that other nodes take over at once."""
        if self._resigned:
            return
        try:
            if self.leader:
                await self.leader.close()  # Before the other nodes are woken, so that one of them can lead.
            await self._session.fetch(self._sql["release_partitions"], self._context.node, timeout=3)
            self._resigned = True
        except Exception as error:
            log.warning("could not release the partitions and the leadership: %s", error)
            self._session.drop()

    # ---------------------------------------------------------------- partitions of this node

    async def _sync_until_stopped(self) -> None:
        outage = Outage("consumers")
        while not self._stopping.is_set():
            self._sync_now.clear()
            try:
                await self._sync()
                drained = self._options.drain and self._failure is None and await self._drained()
            except Exception as error:
                pause, drained = outage.fail(error), False
            else:
                outage.heal()
                pause = 0.05 if self._options.drain else SYNC
            if self._failure is not None:
                raise self._failure  # on_failure='stop_worker': the consumer stops the node.
            if drained:
                return
            await wait_any(pause, self._sync_now, self._stopping)

    async def _sync(self) -> None:
        """Start newly assigned partitions and stop lost ones; a partition that changed in any way is restarted."""
        mine = {each.key: each for each in await self._owned_partitions() if each.consumer in self._consumers}
        for key, (runner, task) in list(self._runners.items()):
            partition = mine.get(key)
            if task.done():
                del self._runners[key]
                if not task.cancelled() and (error := task.exception()):
                    self._failure = error
            elif partition is None or partition.idle or partition.version != runner.partition.version:
                runner.stop()
            elif partition.wanted:
                runner.retry_parked()
        for key, partition in mine.items():
            if key not in self._runners and not partition.idle and self._failure is None:
                self._start(key, partition)

    async def _owned_partitions(self) -> list[Partition]:
        """Return the partitions this node owns. A node whose row was pruned announces its consumers again."""
        rows = [dict(row) for row in await self._session.fetch(self._sql["owned_partitions"], self._context.node)]
        announced, run = {row.pop("announced") for row in rows}, rows[0]["run"]
        if announced != {True} and not self._resigned:
            await self._announce()
        if run is not None and run != self._declared_in and not self._resigned:
            # A promoted standby may lack the newest declarations, and the leader assigns only declared consumers.
            missing = await self._session.fetch(self._sql["missing_declarations"], _json(self._declared))
            if missing:
                await self._declare([row["name"] for row in missing])
            self._declared_in = run
        await self._agree(run)
        return [Partition(**row) for row in rows if row["consumer"] is not None]

    async def _agree(self, run: int | None) -> None:
        """Ensure that the frontier was read in the same run of the server as the partitions."""
        if run is not None and self._dispatcher.frontier.run != run:
            await self._dispatcher.poll()
        if run is None or self._dispatcher.frontier.run != run:
            self._session.drop()
            self._dispatcher.drop()
            await self._pool.expire_connections()
            raise DatabaseUnreachable("the server was restarted or replaced just now")

    def _start(self, key: tuple[str, int], partition: Partition) -> None:
        runner = PartitionConsumer(
            self._consumers[partition.consumer],
            partition,
            node=self._context.node,
            pool=self._pool,
            sql=self._sql,
            decoder=self._decoder,
            dispatcher=self._dispatcher,
            idle=IDLE * self._options.lease,
        )
        task = asyncio.create_task(runner.run(), name=f"howdah consumer {partition.name}")
        self._runners[key] = (runner, task)
        task.add_done_callback(lambda _task: self._sync_now.set())

    async def _drained(self) -> bool:
        """Return whether everything that can be consumed here has been, and no other part of this node is busy."""
        if (progress := sum(runner.position for runner in self.runners)) != self._progress:
            self._progress = progress
            self._drain_group.active()
        since = self._drain_group.activity
        await self._dispatcher.poll()
        rows = await self._session.fetch(self._sql["owners"])
        mine = [row for row in rows if row["consumer"] in self._consumers]
        if any(row["node"] is None or row["upto"] is not None for row in mine):
            self._lead_now.set()  # A leader has to assign it first.
            return False
        busy = {each.key for each in await self._owned_partitions() if not each.idle}
        caught_up = all(key in self._runners and self._runners[key][0].caught_up for key in busy)
        return caught_up and self._drain_group.idle(self, since)

    async def _finish(self) -> None:
        """Wait for the running batches; after the grace period roll them back."""
        tasks = [task for _, task in self._runners.values()]
        for runner, task in self._runners.values():
            runner.stop()
            if self._now:
                runner.cut(task)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._options.grace)
            for runner, task in self._runners.values():
                if task in late:
                    runner.cut(task)
            await asyncio.gather(*tasks, return_exceptions=True)

    # ---------------------------------------------------------------- leadership and wake-ups

    async def _lead(self) -> None:
        """Try to lead periodically, and at once when a node joined or left."""
        assert self.leader is not None
        outage = Outage("leader")
        while not self._over.is_set():  # Also while draining: no other node can lead before this one resigns.
            self._lead_now.clear()
            try:
                await self.leader.tick()
            except Exception as error:
                pause = outage.fail(error)
            else:
                outage.heal()
                pause = self._options.rebalance
                self._sync_now.set()
            await wait_any(pause, self._lead_now, self._over)

    async def _declare(self, names: Iterable[str]) -> None:
        """Make these consumers known to the database, and this node as one that has them."""
        for name in names:
            options = self._consumers[name].options
            filters = (list(each) if each else None for each in (options.only, options.types))
            values = (name, options.partitions, *filters, options.start_position)
            self._declared[name] = await self._session.fetchval(self._sql["declare"], *values)
        await self._announce()

    async def _announce(self) -> None:
        partitions = {name: each.options.partitions for name, each in self._consumers.items()}
        await self._session.fetch(self._sql["announce"], self._context.node, _json(partitions), _json(self._declared))

    def _listening(self) -> bool:
        return self._listener is not None and not self._listener.deaf

    def _on_notify(self, payload: str | None) -> None:
        if payload in (None, "assign"):
            self._lead_now.set()
        if payload in (None, "assign", "assigned"):
            self._sync_now.set()
        if payload in (None, ""):
            self._dispatcher.wake()


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def channel(schema: str) -> str:
    """Return the notification channel of the log, named as in the migration."""
    return "howdah_log_" + hashlib.md5(schema.encode(), usedforsecurity=False).hexdigest()[:16]
