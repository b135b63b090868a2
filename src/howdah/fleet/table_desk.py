"""TableDesk: where workers without a database get rows of the user's tables, and say how they ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from howdah import service
from howdah.fleet.belief import unique
from howdah.fleet.door import RemoteNode
from howdah.fleet.refusal import bad, locked
from howdah.fleet.row_leases import Key, RowLeases
from howdah.job import Job
from howdah.outcome import Ack, Outcome
from howdah.pg.database import Database, Session
from howdah.service import Outage
from howdah.table.options import TableOptions
from howdah.table.plan import Plan
from howdah.table.refusal import Dropped, message_of, split
from howdah.table.silence import look_every
from howdah.table.store import TableStore

PATIENCE = 2.0
"""Seconds a heartbeat waits for a table at most: its worker, which also has jobs, waits for the answer."""
FIRST_PAUSE = 0.02
"""Seconds until a locked row is tried again for a worker that cannot be told so; doubled each time."""
MOST_UNRELEASED = 10_000
LOOK = 1.0
"""Seconds between looks for rows while somebody waits; a table of the user's rings no bell here."""


@dataclass(slots=True)
class Renewed:
    """What came of a heartbeat for rows; those that are nowhere here are no longer the worker's."""

    kept: set[Key] = field(default_factory=set)
    cancel: list[Any] = field(default_factory=list)
    """Rows no longer wanted."""
    refused: dict[Any, str] = field(default_factory=dict)
    """Rows that could not be renewed, by id, and why."""


class TableDesk:
    """The rows of one table. ``lease``: seconds they stay a worker's without a heartbeat, if the table says no less."""

    def __init__(self, database: Database, plan: Plan, *, pool: Any, session: Session, lease: float) -> None:
        self._plan = plan
        self.reset_every = look_every(plan.options.stalled_after)
        self._lease = lease
        self.patience = min(PATIENCE, max(0.5, min(plan.options.stalled_after, lease) / 6))
        """Seconds a heartbeat may take, and an ``/ack`` may wait for locked rows."""
        self._store = TableStore(database, plan, pool=pool)
        self._beats = Session(database, "heartbeat")  # of its own: a locked table must not hold up what others ask
        self._leases = RowLeases(database, session, plan.options.name)
        self._outage = Outage(f"claim of {plan.options.name} for the fleet")
        self._closing = asyncio.Event()
        self._returning: set[asyncio.Task[None]] = set()
        self._unreleased: set[Key] = set()
        """Rows to be released that were locked; tried again with every reset."""

    @classmethod
    async def open(
        cls, database: Database, options: TableOptions, *, pool: Any, session: Session, lease: float
    ) -> TableDesk:
        """Check the table and get ready."""
        check = Session(database, "check")
        try:
            async with check.use() as conn:
                # how much a worker wants to do is in its own hands
                limitless = replace(options, total_jobs=0, max_active_time=0)
                plan = await Plan.make(conn, limitless, database.schema)
        finally:
            await check.close()
        return cls(database, plan, pool=pool, session=session, lease=lease)

    async def claim(self, node: RemoteNode, most: int, wait: float) -> list[Job]:
        """Up to ``most`` rows for a worker, within ``wait`` seconds."""
        until = time.monotonic() + wait
        while not self._closing.is_set():
            jobs = await self._claim(node, most)
            left = until - time.monotonic()
            if jobs or left <= 0:
                return jobs
            await service.wait(self._closing, min(LOOK, left))
        return []

    def turn_away(self) -> None:
        """Let everybody who waits go with nothing: this control plane ends."""
        self._closing.set()

    async def _claim(self, node: RemoteNode, most: int) -> list[Job]:
        claiming = asyncio.create_task(self._take(node, most))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:  # whoever asked has gone; what is claimed for nobody goes back
            returning = asyncio.create_task(self._hand_back(claiming))
            self._returning.add(returning)
            returning.add_done_callback(self._returning.discard)
            raise

    async def _take(self, node: RemoteNode, most: int) -> list[Job]:
        jobs = await self._store.claim(most, {}, name=node.name)
        self._store.disown({job.token for job in jobs})  # the worker remembers them, not we
        try:
            await self._leases.note(node.id, jobs)
        except Exception:
            await self._release([(job.token, job.id) for job in jobs])
            raise
        return jobs

    async def _hand_back(self, claiming: asyncio.Task[list[Job]]) -> None:
        try:
            await self._release([(job.token, job.id) for job in await claiming])
        except Exception as error:
            self._outage.fail(error)  # nobody renews them: they run out by themselves

    async def ack(self, node: int, acks: Sequence[Ack], *, wait: bool = False) -> list[Ack]:
        """Record how attempts ended, of those that are the worker's own. The store marks those that are postponed.

        ``wait``: for a worker that cannot be told so. Locked rows are waited for a little, then the answer is 503; all
        others are recorded by then.
        """
        self._check([ack.job.id for ack in acks])
        tokens = await self._leases.own(node, [(ack.job.token, ack.job.id) for ack in acks])
        own = [ack for ack in unique(acks) if ack.job.token in tokens]
        accepted = await self._store.ack(own, ())
        until, pause = time.monotonic() + self.patience, FIRST_PAUSE
        while wait and (left := [ack for ack in own if ack.postponed]):
            if time.monotonic() > until:
                raise locked(f"row {left[0].job.id!r} is locked by a transaction; report it again")
            await asyncio.sleep(pause)
            pause *= 2
            accepted += await self._store.ack(left, ())
        return accepted

    async def release(self, node: int, keys: Sequence[Key]) -> int:
        """Hand a worker's own rows back."""
        self._check([id for _, id in keys])
        own = await self._leases.own(node, keys)
        return await self._release([key for key in keys if key[0] in own])

    def _check(self, ids: Sequence[Any]) -> None:
        """Reject ids that no row of the table can have."""
        for id in ids:
            if not self._plan.fits(id):
                raise bad(f"{str(id)[:50]!r} cannot be the id of a row of {self._plan.options.name!r}", "id")

    async def take_back(self, node: int, tokens: Sequence[int] | None = None) -> None:
        """Release what a worker was given: all of it, or these leases, since the answers that named them were lost."""
        await self._release(await self._leases.held(node, tokens))

    async def heartbeat(self, node: int, keys: Sequence[Key]) -> Renewed:
        """Say that these rows are worked on, as far as they are the worker's own."""
        tokens = await self._leases.renew(node, keys)
        own = {key for key in keys if key[0] in tokens}
        said = Renewed()
        if own:
            await self._beat(list({id for _, id in own}), list(tokens), own, said)
        return said

    async def _beat(self, ids: list[Any], tokens: list[int], own: set[Key], said: Renewed) -> None:
        """Renew rows. Those for which the table refuses that, as by a trigger, cost their neighbours nothing."""

        async def beat(part: Sequence[Any]) -> list[Any]:
            return await self._beats.fetch(self._plan.sql["heartbeat"], list(part), tokens)

        rows, refused = await split(ids, beat)
        refused += [(self._plan.id(row["id"]), Dropped()) for row in rows if row["free"] and not row["beat"]]
        self._store.notes.add("heartbeat", refused)
        said.refused = {id: message_of(error) for id, error in refused}
        known = {(row["token"], self._plan.id(row["id"])): row["cancel"] for row in rows}
        said.kept = {key for key in own & known.keys() if key[1] not in said.refused}
        said.cancel = [id for token, id in own & known.keys() if known[token, id]]

    async def reset(self) -> None:
        """Take back the rows of silent workers; first those that are to be released and were locked."""
        if self._unreleased:
            keys, self._unreleased = self._unreleased, set()
            try:
                await self._release(list(keys))
            except Exception:
                self._unreleased |= keys
                raise
        while lost := await self._leases.lose(self._lease):
            await self._store.expire(lost, self._beats)
        await self._store.reset(100)
        await self._store.cancel(100)

    async def _release(self, keys: Sequence[Key]) -> int:
        acks = [Ack(Job(id, "", "", 1, 1, token, b""), Outcome.RELEASED, 0) for token, id in keys]
        if not acks:
            return 0
        released = await self._store.ack(acks, ())
        later = [(ack.job.token, ack.job.id) for ack in acks if ack.postponed]
        self._unreleased.update(later[: MOST_UNRELEASED - len(self._unreleased)])
        return len(released)

    async def close(self) -> None:
        """Close the connections."""
        self.turn_away()
        if self._returning:
            await asyncio.wait(self._returning, timeout=LOOK)
        await self._store.close()
        await self._beats.close()
