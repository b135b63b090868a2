"""Plane: the control plane's verbs. It keeps nothing that another replica would not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from howdah import telemetry
from howdah.audit.trail import Trail
from howdah.codes import CODES, retries
from howdah.errors import LeaseLost
from howdah.fence import new_node
from howdah.fleet import answers
from howdah.fleet import messages as m
from howdah.fleet.desk import JobDesk
from howdah.fleet.door import Caller, Door, RemoteNode
from howdah.fleet.heartbeats import Heartbeats
from howdah.fleet.options import ServeOptions
from howdah.fleet.papers import check_registration
from howdah.fleet.refusal import Refused, bad, stale, unknown
from howdah.fleet.table_desk import TableDesk
from howdah.fleet.tokens import fingerprint, make
from howdah.fleet.wire import ack_of, claimed, clean, raw
from howdah.job import Job
from howdah.jobs.holds import LONGEST
from howdah.journal import Run, Said
from howdah.outcome import Ack, Outcome
from howdah.pg import sql
from howdah.pg.database import Database, Session
from howdah.retry import Backoff
from howdah.scrub import hide

MOST_WORKERS = 1000


class Plane:
    """Serves workers that have no database."""

    def __init__(
        self,
        database: Database,
        options: ServeOptions,
        *,
        door: Door,
        session: Session,
        jobs: JobDesk,
        tables: Mapping[str, TableDesk],
        apart: Mapping[str, str],
    ) -> None:
        self._options = options
        self._door = door
        self._session = session
        self._jobs = jobs
        self._tables = tables
        self._heartbeats = Heartbeats(jobs, tables)
        self._apart = apart
        """What needs the database, and why."""
        self._sql = sql.load("howdah.fleet", schema=database.schema)
        self._trail = Trail(database.schema)

    # ---------------------------------------------------------------- workers

    async def register(self, caller: Caller, body: m.Register) -> m.Registered:
        """A worker starts: it is given an id, fresh for every start, and a credential of its own."""
        queues = check_registration(caller, body, self._apart)
        if missing := [table for table in body.tables if table not in self._tables]:
            raise bad(f"there is no table {missing[0]!r} here; it must be in the app that is served", "tables")
        credential = make("node")
        values = (
            *(body.hostname, body.version, queues, body.kinds, body.slots, body.tables, body.labels),
            *(fingerprint(credential), caller.token),
        )
        # at random: a failover to a standby that lagged would give out an id of a sequence twice
        while (id := await self._session.fetchval(self._sql["register"], *values, new_node())) is None:
            continue
        telemetry.emit("fleet.register", node=id, name=body.hostname)
        options = self._options
        return m.Registered(id=id, credential=credential, heartbeat=options.heartbeat, lease=options.offline_after)

    async def heartbeat(self, node: RemoteNode, body: m.Heartbeat) -> m.Beaten:
        """It lives: renew what it holds, say what it lost and what is to be cancelled."""
        running = max(body.running, sum(map(len, body.held.values())))
        state = await self._session.fetchval(self._sql["beat"], node.id, running)
        if state != node.state:
            self._door.forget(node.id)
        if state is None:
            raise unknown(f"worker {node.id} any more; register again")
        return m.Beaten(status=state, fates=await self._heartbeats.renew(node, body.held))

    async def claim(self, node: RemoteNode, body: m.Claim) -> m.Claims | None:
        """Jobs for a worker, or nothing within the time it waits."""
        if node.leaving:
            return None
        most = min(body.max, 1000)
        table = None if body.store == m.JOBS else self._table(node, body.store)
        if unheard := await self._accept(node, body):
            await (table.take_back(node.id, unheard) if table else self._jobs.release(node.id, unheard))
        if table:
            jobs = await table.claim(node, most, body.wait)
        else:
            scope = (node.kinds, node.queues, node.labels)
            jobs = await self._jobs.claim(node.id, scope, most=most, room=body.room, wait=body.wait)
        if not jobs:
            return None
        if body.wait and (await self._door.node(node.id)).leaving:  # somebody asked it to drain meanwhile
            held = [m.Held(id=job.id, token=job.token) for job in jobs]
            await self.release(node, m.Release(held=held, store=body.store))
            return None
        if node.state == "idle":
            await self._turn(node, took=True)
        telemetry.emit("fleet.claim", node=node.id, jobs=len(jobs))
        return m.Claims(jobs=[claimed(job) for job in jobs])

    async def _accept(self, node: RemoteNode, body: m.Claim) -> list[int]:
        """Refuse a claim that comes after a newer one. Returns the leases whose claims the worker got no answer to."""
        if body.number is None:
            if body.tokens is not None:
                raise bad("tokens need the number of the claim: what older claims gave goes back", "number")
            return []
        row = await self._session.fetchrow(self._sql["accept_claim"], node.id, body.store, body.number, body.tokens)
        if row is None:
            raise stale(f"claim {body.number} of worker {node.id} came after a newer one; nothing was claimed")
        return list(row["unheard"])

    async def ack(self, node: RemoteNode, body: m.Ack) -> m.Acked:
        """Record how attempts ended; what is missing in the answer was no longer the worker's."""
        failed = [report.id for report in body.acks if report.error or report.message or report.traceback]
        told = await self._jobs.told(failed if body.store == m.JOBS else ())
        acks = [ack_of(report, told.get(report.id, ())) for report in body.acks]
        if body.store == m.JOBS:
            if any(not isinstance(ack.job.id, int) for ack in acks):
                raise bad("the id of a job is a number", "acks")
            for report, ack in zip(body.acks, acks, strict=True):
                if report.hold and (row := await self._leased(node, report.token, ack.job.id)) is not None:
                    await self._hold(row["kind"], report.hold, ack.message)
            accepted = await self._jobs.ack(node.id, acks, body.finished)
            if body.finished:
                await self._turn(node, took=False)
        else:
            accepted = await self._table(node, body.store).ack(node.id, acks, wait=not body.postpone)
        return m.Acked(
            accepted=[m.Settled(id=ack.job.id, token=ack.job.token, outcome=ack.outcome.value) for ack in accepted],
            postponed=[m.Held(id=ack.job.id, token=ack.job.token) for ack in acks if ack.postponed],
        )

    async def release(self, node: RemoteNode, body: m.Release) -> m.Released:
        """Release the jobs or rows that are named, and all that is left of leases that are; charges no attempt."""
        keys = [(held.token, held.id) for held in body.held]
        if body.store == m.JOBS:
            if any(not isinstance(held.id, int) for held in body.held):
                raise bad("the id of a job is a number", "held")
            released = await self._jobs.release(node.id, body.tokens) if body.tokens else 0
            whole = set(body.tokens)
            released += await self._jobs.release_jobs(node.id, [key for key in keys if key[0] not in whole])
            await self._turn(node, took=False)
            return m.Released(jobs=released)
        return m.Released(jobs=await self._table(node, body.store).release(node.id, keys))

    async def complete(self, node: RemoteNode, job_id: int, body: m.Complete) -> m.Ended:
        """One job is done. Said again it changes nothing."""
        return await self._end(
            node, job_id, body.token, lambda job: Ack(job, Outcome.OK, body.took, raw(body.result, "result"))
        )

    async def fail(self, node: RemoteNode, job_id: int, body: m.Fail) -> m.Ended:
        """One job failed: it is retried if that is of use. Said again it changes nothing."""
        if body.code is not None and body.code not in CODES:
            raise bad(f"code must be one of {', '.join(CODES)}, got {body.code!r}", "code")

        def failed(job: Job) -> Ack:
            again = retries(body.code, job.attempt) if body.retry is None else body.retry
            delay = body.retry_after if body.retry_after is not None else Backoff().delay(job.attempt)
            outcome = Outcome.RETRY if again and not job.is_last_attempt else Outcome.FAILED
            error = body.code or body.error
            return Ack(job, outcome, body.took, None, delay, clean(error, told), message, clean(body.traceback, told))

        told = (await self._jobs.told([job_id])).get(job_id, ())
        message = clean(body.message, told)
        return await self._end(node, job_id, body.token, failed, hold=body.hold, reason=message)

    async def _end(
        self,
        node: RemoteNode,
        id: int,
        token: int,
        decide: Any,
        *,
        hold: float | None = None,
        reason: str | None = None,
    ) -> m.Ended:
        row = await self._leased(node, token, id)
        if row is not None:
            job = Job(id, row["queue"], row["kind"], row["attempt"], row["max_attempts"], token, b"", row["key"])
            if hold:
                await self._hold(job.kind, hold, reason)
            ack: Ack = decide(job)
            state: Any = await self._jobs.belief.settle(node.id, ack, last=row["last"])
            if state is not None:
                await self._turn(node, took=False)
                return m.Ended(id=id, state=state, retry_in=ack.delay if state == "queued" else None)
        known = await self._session.fetchrow(self._sql["reported"], node.id, token, id)
        if known is None:
            raise unknown(f"job {id}")
        if known["state"] is None:
            raise _not_held(node, id, token)
        return m.Ended(id=id, state=known["state"])

    async def _turn(self, node: RemoteNode, *, took: bool) -> None:
        state = await self._session.fetchval(self._sql["turn"], node.id, took)
        if state is not None:
            self._door.turned(node.id, state)
        elif took:  # it is not what we thought
            self._door.forget(node.id)

    async def _leased(self, node: RemoteNode, token: int, id: Any) -> Any:
        return await self._session.fetchrow(self._sql["leased"], node.id, token, id)

    async def say(self, node: RemoteNode, job_id: int, body: m.LogLines) -> None:
        """Keep what a running job says, and how far it is."""
        told = (await self._jobs.told([job_id])).get(job_id, ())
        lines = [hide(line, told).replace("\0", "\\0") for line in body.lines]
        note = body.note and hide(body.note, told)
        said = Said(stream=body.stream, lines=lines, progress=body.progress, note=note)
        try:
            await self._jobs.say(node.id, _named(job_id, body.token), said)
        except LeaseLost:
            raise _not_held(node, job_id, body.token) from None

    async def note_run(self, node: RemoteNode, job_id: int, body: m.RunNote) -> None:
        """Keep the record of a run. Said again it changes nothing."""
        run = Run(state=body.state, spec=raw(body.spec, "spec"), code=body.code, result=raw(body.result, "result"))
        try:
            await self._jobs.note_run(node.id, _named(job_id, body.token), run)
        except LeaseLost:
            raise _not_held(node, job_id, body.token) from None

    async def drain(self, id: int, *, itself: bool = False) -> answers.Worker:
        """A worker shall take no more; what it runs goes on. ``itself``: it says so of itself, so nobody did it."""
        async with self._session.use() as conn, conn.transaction():
            row = await conn.fetchrow(self._sql["drain"], id)
            if row is None:
                raise unknown(f"worker {id}")
            if not itself and row["was"] != row["state"]:
                before, after = {"state": row["was"]}, {"state": row["state"]}
                await self._trail.record(conn, "drain", "node", [id], before=before, after=after)
        self._door.forget(id)
        self._jobs.turn_away(id)
        return await self.worker(id)

    async def leave(self, id: int) -> None:
        """A worker ends: what it still held goes back, and no attempt is charged."""
        tokens = await self._session.fetchval(self._sql["leases"], id)
        if tokens:
            await self._jobs.release(id, tokens)
        for desk in self._tables.values():
            await desk.take_back(id)
        row = await self._session.fetchrow(self._sql["leave"], id)
        self._door.forget(id)
        self._jobs.turn_away(id)
        if not row["gone"]:
            await self._door.node(id, fresh=True)

    async def workers(self, status: str | None = None) -> answers.Workers:
        """All nodes, newest first."""
        if status is not None and status not in ("idle", "busy", "draining", "offline"):
            raise bad(f"status must be idle, busy, draining or offline, got {status!r}", "status")
        rows = await self._session.fetch(self._sql["workers"], None, status, MOST_WORKERS)
        return answers.Workers(workers=[answers.Worker(**row) for row in rows])

    async def worker(self, id: int) -> answers.Worker:
        """One node."""
        rows = await self._session.fetch(self._sql["workers"], id, None, 1)
        if not rows:
            raise unknown(f"worker {id}")
        return answers.Worker(**rows[0])

    def _table(self, node: RemoteNode, name: str) -> TableDesk:
        desk = self._tables.get(name)
        if desk is None or name not in node.tables:
            raise bad(f"worker {node.id} did not register for a table {name!r}", "store")
        return desk

    async def _hold(self, kind: str, seconds: float, reason: str | None) -> None:
        await self._jobs.hold(kind, min(seconds, LONGEST), reason)


def _named(id: int, token: int) -> Job:
    """As much of a job as a report names."""
    return Job(id, "", "", 0, 0, token, b"")


def _not_held(node: RemoteNode, id: int, token: int) -> Refused:
    return stale(f"job {id} is not held under token {token} by worker {node.id}; its lease is lost")
