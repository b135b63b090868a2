"""Claims rows of the application's tables for remote workers and records their outcomes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from howdah import loops, telemetry
from howdah.control_plane.auth import RegisteredWorker
from howdah.control_plane.errors import invalid, locked
from howdah.control_plane.job_queue import LeaseKey
from howdah.control_plane.reports import unique
from howdah.job import Job
from howdah.loops import Outage
from howdah.node.heartbeat import Contact
from howdah.outcome import Ack, Outcome
from howdah.postgres import sql
from howdah.postgres.database import Database, Session
from howdah.redact import secret_spellings
from howdah.table.options import TableOptions
from howdah.table.plan import TablePlan
from howdah.table.rejected import Dropped, message_of, split
from howdah.table.reset import check_interval
from howdah.table.store import TableStore

HEARTBEAT_TIMEOUT = 2.0
"""Seconds a heartbeat waits for one table at most: the worker waits for the response, and it also holds jobs."""
FIRST_PAUSE = 0.02
"""Seconds until a locked row is tried again for a worker that does not read ``postponed``; doubled each time."""
MAX_UNRELEASED = 10_000
MAX_EXPIRED = 100
"""Leases that one statement ends."""
POLL_EVERY = 1.0
"""Seconds between two claims of a long poll: an application's table sends no notification to the control plane."""


class RowLeases:
    """The leases of remote workers on rows of one table, stored in the database so that every replica sees them.

    A token belongs to one worker for ever.
    """

    def __init__(self, database: Database, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self._sql = sql.load("howdah.control_plane", schema=database.schema)

    async def add(self, node: int, jobs: Sequence[Job]) -> None:
        """Store the leases on rows, before the worker gets them."""
        for token in {job.token for job in jobs}:
            ids = msgspec.json.encode([job.id for job in jobs if job.token == token])
            await self._session.fetch(self._sql["claim_rows"], token, node, self._name, ids)

    async def owned(self, node: int, keys: Iterable[LeaseKey]) -> set[int]:
        """Return the tokens among these that belong to the worker."""
        return await self._tokens("own_rows", node, keys)

    async def renew(self, node: int, keys: Iterable[LeaseKey]) -> set[int]:
        """Renew leases; return the tokens among them that belong to the worker."""
        return await self._tokens("heartbeat_rows", node, keys)

    async def held(self, node: int, tokens: Sequence[int] | None = None) -> list[LeaseKey]:
        """Return the rows a worker was given: all of them, or those under these tokens."""
        return _keys(await self._session.fetch(self._sql["held_rows"], node, self._name, tokens))

    async def expire(self, seconds: float, until: float | None) -> list[LeaseKey]:
        """End leases that were not renewed for so long; return their rows. After ``until``, server time, end none."""
        return _keys(await self._session.fetch(self._sql["expire_rows"], self._name, seconds, MAX_EXPIRED, until))

    async def _tokens(self, statement: str, node: int, keys: Iterable[LeaseKey]) -> set[int]:
        tokens = list({token for token, _ in keys})
        if not tokens:
            return set()
        return {row["token"] for row in await self._session.fetch(self._sql[statement], node, tokens)}


def _keys(rows: Sequence[Any]) -> list[LeaseKey]:
    return [(row["token"], id) for row in rows for id in msgspec.json.decode(row["ids"])]


@dataclass(slots=True)
class RowRenewal:
    """Result of a heartbeat for rows. The worker has lost the rows that are not in it."""

    kept: set[LeaseKey] = field(default_factory=set)
    cancel: list[Any] = field(default_factory=list)
    """Ids of rows to cancel."""
    rejected: dict[Any, str] = field(default_factory=dict)
    """Rows that could not be renewed, by id, with the reason."""


class RemoteTableQueue:
    """The rows of one table. ``lease``: seconds a worker keeps them without a heartbeat, unless the table sets less."""

    def __init__(self, database: Database, plan: TablePlan, *, pool: Any, session: Session, lease: float) -> None:
        self._plan = plan
        self.reset_every = check_interval(plan.options.stalled_after)
        self._lease = lease
        self.timeout = min(HEARTBEAT_TIMEOUT, max(0.5, min(plan.options.stalled_after, lease) / 6))
        """Seconds a heartbeat may take, and an ``/ack`` may wait for locked rows."""
        self._store = TableStore(database, plan, pool=pool)
        self._heartbeats = Session(database, "heartbeat")  # a locked table must not delay other statements
        self._leases = RowLeases(database, session, plan.options.name)
        self._contact = Contact(database, session, lease=lease, remote=True)
        self._outage = Outage(f"claim of {plan.options.name} for the fleet")
        self._closing = asyncio.Event()
        self._releasing: set[asyncio.Task[None]] = set()
        self._unreleased: set[LeaseKey] = set()
        """Rows that were locked when they should have been released; tried again with every reset."""

    @classmethod
    async def open(
        cls, database: Database, options: TableOptions, *, pool: Any, session: Session, lease: float
    ) -> RemoteTableQueue:
        """Check the table and return its queue."""
        check = Session(database, "check")
        try:
            async with check.use() as conn:
                # the worker itself applies these two limits
                limitless = replace(options, total_jobs=0, max_active_time=0)
                plan = await TablePlan.make(conn, limitless, database.schema)
        finally:
            await check.close()
        return cls(database, plan, pool=pool, session=session, lease=lease)

    async def claim(self, node: RegisteredWorker, limit: int, timeout: float) -> list[Job]:
        """Claim up to ``limit`` rows; wait up to ``timeout`` seconds for the first one (long poll)."""
        until = time.monotonic() + timeout
        while not self._closing.is_set():
            jobs = await self._claim(node, limit)
            left = until - time.monotonic()
            if jobs or left <= 0:
                return jobs
            await loops.wait(self._closing, min(POLL_EVERY, left))
        return []

    def cancel_waits(self) -> None:
        """End all long polls with an empty response and accept no new ones (shutdown)."""
        self._closing.set()

    async def _claim(self, node: RegisteredWorker, limit: int) -> list[Job]:
        claiming = asyncio.create_task(self._claim_rows(node, limit))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:  # the worker disconnected, so the rows are released
            releasing = asyncio.create_task(self._release_claimed(claiming))
            self._releasing.add(releasing)
            releasing.add_done_callback(self._releasing.discard)
            raise

    async def _claim_rows(self, node: RegisteredWorker, limit: int) -> list[Job]:
        jobs = await self._store.claim_for(node.name, limit)
        self._store.disown({job.token for job in jobs})  # the worker renews them, not this process
        try:
            await self._leases.add(node.id, jobs)
        except Exception:
            await self._release([(job.token, job.id) for job in jobs])
            raise
        return jobs

    async def _release_claimed(self, claiming: asyncio.Task[list[Job]]) -> None:
        try:
            await self._release([(job.token, job.id) for job in await claiming])
        except Exception as error:
            self._outage.fail(error)  # no worker renews these leases, so they expire

    async def ack(self, node: int, acks: Sequence[Ack], *, wait: bool = False) -> list[Ack]:
        """Record outcomes of rows that the worker holds. The store marks those that are postponed.

        ``wait``: the worker does not read ``postponed``. Locked rows are then tried again for a short time; after that
        the response is a 503, with all other outcomes recorded.
        """
        self._check_ids([ack.job.id for ack in acks])
        tokens = await self._leases.owned(node, [(ack.job.token, ack.job.id) for ack in acks])
        own = [ack for ack in unique(acks) if ack.job.token in tokens]
        accepted = await self._store.ack(own, ())
        until, pause = time.monotonic() + self.timeout, FIRST_PAUSE
        while wait and (left := [ack for ack in own if ack.postponed]):
            if time.monotonic() > until:
                raise locked(f"row {left[0].job.id!r} is locked by a transaction; report it again")
            await asyncio.sleep(pause)
            pause *= 2
            accepted += await self._store.ack(left, ())
        return accepted

    async def secrets_of(self, ids: Sequence[Any]) -> dict[Any, tuple[str, ...] | None]:
        """Return the secret values of rows, so that reported texts can be scrubbed of them; ``None``: not known."""
        places = self._plan.options.reader.secrets if ids else ()
        if not places:
            return {}
        self._check_ids(ids)
        try:
            rows = await self._heartbeats.fetch(self._plan.sql["read_records"], list(ids), timeout=self.timeout)
        except Exception as error:  # a view may raise for a row, and its outcome must be recorded all the same
            self._outage.fail(error)
            return dict.fromkeys(ids)
        return {self._plan.id(row["id"]): secret_spellings(msgspec.json.decode(row["record"]), places) for row in rows}

    async def release(self, node: int, keys: Sequence[LeaseKey]) -> int:
        """Release rows that the worker holds; return their number."""
        self._check_ids([id for _, id in keys])
        own = await self._leases.owned(node, keys)
        return await self._release([key for key in keys if key[0] in own])

    def _check_ids(self, ids: Sequence[Any]) -> None:
        """Reject ids that no row of the table can have."""
        for id in ids:
            if not self._plan.fits(id):
                raise invalid(f"{str(id)[:50]!r} cannot be the id of a row of {self._plan.options.name!r}", "id")

    async def release_all(self, node: int, tokens: Sequence[int] | None = None) -> None:
        """Release all rows of a worker, or those under these tokens, whose claims got no response."""
        await self._release(await self._leases.held(node, tokens))

    async def heartbeat(self, node: int, keys: Sequence[LeaseKey]) -> RowRenewal:
        """Renew the leases on rows that the worker holds."""
        tokens = await self._leases.renew(node, keys)
        own = {key for key in keys if key[0] in tokens}
        renewal = RowRenewal()
        if own:
            await self._renew(list({id for _, id in own}), list(tokens), own, renewal)
        return renewal

    async def _renew(self, ids: list[Any], tokens: list[int], own: set[LeaseKey], renewal: RowRenewal) -> None:
        """Renew rows. A row whose update the table rejects, for example by a trigger, does not affect the others."""

        async def renew(part: Sequence[Any]) -> list[Any]:
            return await self._heartbeats.fetch(self._plan.sql["heartbeat"], list(part), tokens)

        rows, rejected = await split(ids, renew)
        rejected += [(self._plan.id(row["id"]), Dropped()) for row in rows if row["free"] and not row["beat"]]
        self._store.notes.add("heartbeat", rejected)
        renewal.rejected = {id: message_of(error) for id, error in rejected}
        known = {(row["token"], self._plan.id(row["id"])): row["cancel"] for row in rows}
        renewal.kept = {key for key in own & known.keys() if key[1] not in renewal.rejected}
        renewal.cancel = [id for token, id in own & known.keys() if known[token, id]]

    async def reset(self) -> None:
        """Release the rows that were locked when they were to be released, then the rows of expired leases."""
        if self._unreleased:
            keys, self._unreleased = self._unreleased, set()
            try:
                await self._release(list(keys))
            except Exception:
                self._unreleased |= keys
                raise
        while (judged := await self._contact.note()).workers and (
            expired := await self._leases.expire(self._lease, judged.until)
        ):
            await self._store.expire(expired, self._heartbeats)
        reset, failed = await self._store.reset(100)
        if reset or failed:
            telemetry.emit("table.reset", table=self._plan.options.name, reset=reset, failed=failed)
        await self._store.cancel(100)

    async def _release(self, keys: Sequence[LeaseKey]) -> int:
        acks = [Ack(Job(id, "", "", 1, 1, token, b""), Outcome.RELEASED, 0) for token, id in keys]
        if not acks:
            return 0
        released = await self._store.ack(acks, ())
        later = [(ack.job.token, ack.job.id) for ack in acks if ack.postponed]
        self._unreleased.update(later[: MAX_UNRELEASED - len(self._unreleased)])
        return len(released)

    async def close(self) -> None:
        """End all long polls and close the connections."""
        self.cancel_waits()
        if self._releasing:
            await asyncio.wait(self._releasing, timeout=POLL_EVERY)
        await self._store.close()
        await self._heartbeats.close()
