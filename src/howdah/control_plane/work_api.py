"""Work API: claims, outcomes, releases and logs of workers without a database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from howdah import telemetry
from howdah.control_plane.auth import Authenticator, RegisteredWorker, is_allowed
from howdah.control_plane.errors import RequestRejected, invalid, stale, unauthorized, unknown
from howdah.control_plane.job_queue import RemoteJobQueue
from howdah.control_plane.reports import ack_of, json_or_none, scrub_text
from howdah.control_plane.table_queue import RemoteTableQueue
from howdah.errors import ERROR_CODES, LeaseLost, retries
from howdah.job import Job
from howdah.jobs.hold import LONGEST
from howdah.outcome import Ack, Outcome
from howdah.postgres import sql
from howdah.postgres.database import Database, Session
from howdah.redact import hide
from howdah.remote import messages as m
from howdah.retry import Backoff
from howdah.store import JobLogEntry, RunRecord

MAX_CLAIMED = 1000


class WorkApi:
    """Keeps no state that another replica of the control plane would not see."""

    def __init__(
        self,
        database: Database,
        *,
        auth: Authenticator,
        session: Session,
        jobs: RemoteJobQueue,
        tables: Mapping[str, RemoteTableQueue],
    ) -> None:
        self._auth = auth
        self._session = session
        self._jobs = jobs
        self._tables = tables
        self._sql = sql.load("howdah.control_plane", schema=database.schema)

    async def claim(self, node: RegisteredWorker, body: m.ClaimRequest) -> m.ClaimResponse | None:
        """Claim jobs or rows, waiting for the first one if asked to (long poll); ``None``: there are none."""
        if node.leaving:
            return None
        limit = min(body.max, MAX_CLAIMED)
        table = None if body.store == m.JOBS else self._table(node, body.store)
        if unconfirmed := await self._accept(node, body):
            await (table.release_all(node.id, unconfirmed) if table else self._jobs.release(node.id, unconfirmed))
        if table:
            jobs = await table.claim(node, limit, body.wait)
        else:
            filter = (node.kinds, node.queues, node.labels)
            jobs = await self._jobs.claim(node.id, filter, limit=limit, room=body.room, timeout=body.wait)
        if not jobs:
            return None
        if body.wait and ((now := await self._auth.node(node.id)).leaving or now.revoked):  # since the long poll began
            held = [m.HeldJob(id=job.id, token=job.token) for job in jobs]
            await self.release(node, m.ReleaseRequest(held=held, store=body.store))
            if now.revoked:
                raise unauthorized("the token this worker registered with is revoked")
            return None
        if node.state == "idle":
            await self._update_state(node, claimed=True)
        telemetry.emit("fleet.claim", node=node.id, jobs=len(jobs))
        return m.ClaimResponse(jobs=[_claimed_job(job) for job in jobs])

    async def _accept(self, node: RegisteredWorker, body: m.ClaimRequest) -> list[int]:
        """Reject a claim that arrives after a newer one. Return the leases whose claims got no response."""
        if body.number is None:
            if body.tokens is not None:
                raise invalid("tokens need the number of the claim: what older claims gave is released", "number")
            return []
        row = await self._session.fetchrow(self._sql["accept_claim"], node.id, body.store, body.number, body.tokens)
        if row is None:
            raise stale(f"claim {body.number} of worker {node.id} came after a newer one; nothing was claimed")
        return list(row["unconfirmed"])

    async def ack(self, node: RegisteredWorker, body: m.AckRequest) -> m.AckResponse:
        """Record outcomes. Reports on lost leases are missing in the response."""
        failed = [report.id for report in body.acks if report.error or report.message or report.traceback]
        secrets: Mapping[Any, tuple[str, ...] | None]
        if body.store == m.JOBS:
            secrets = await self._jobs.secrets_of(failed)
        else:
            secrets = await self._table(node, body.store).secrets_of(failed)
        acks = [ack_of(report, secrets.get(report.id, ())) for report in body.acks]
        if body.store == m.JOBS:
            if any(not isinstance(ack.job.id, int) for ack in acks):
                raise invalid("the id of a job is a number", "acks")
            for report, ack in zip(body.acks, acks, strict=True):
                if report.hold and (row := await self._leased_job(node, report.token, ack.job.id)) is not None:
                    await self._hold(row["kind"], report.hold, ack.message)
            accepted = await self._jobs.ack(node.id, acks, body.finished)
            if body.finished:
                await self._update_state(node, claimed=False)
        else:
            accepted = await self._table(node, body.store).ack(node.id, acks, wait=not body.postpone)
        telemetry.emit("remote.ack", store=body.store, outcomes=[ack.outcome.value for ack in accepted])
        return m.AckResponse(
            accepted=[
                m.RecordedOutcome(id=ack.job.id, token=ack.job.token, outcome=ack.outcome.value) for ack in accepted
            ],
            postponed=[m.HeldJob(id=ack.job.id, token=ack.job.token) for ack in acks if ack.postponed],
        )

    async def release(self, node: RegisteredWorker, body: m.ReleaseRequest) -> m.ReleaseResponse:
        """Release single jobs or rows, and what is left of whole leases, without charging an attempt."""
        keys = [(held.token, held.id) for held in body.held]
        if body.store == m.JOBS:
            if any(not isinstance(held.id, int) for held in body.held):
                raise invalid("the id of a job is a number", "held")
            released = await self._jobs.release(node.id, body.tokens) if body.tokens else 0
            whole = set(body.tokens)
            released += await self._jobs.release_jobs(node.id, [key for key in keys if key[0] not in whole])
            await self._update_state(node, claimed=False)
            return m.ReleaseResponse(jobs=released)
        return m.ReleaseResponse(jobs=await self._table(node, body.store).release(node.id, keys))

    async def complete(self, node: RegisteredWorker, job_id: int, body: m.CompleteRequest) -> m.FinishResponse:
        """Finish a job as done. Idempotent."""
        return await self._finish(
            node, job_id, body.token, lambda job: Ack(job, Outcome.OK, body.took, json_or_none(body.result, "result"))
        )

    async def fail(self, node: RegisteredWorker, job_id: int, body: m.FailRequest) -> m.FinishResponse:
        """Finish a job as failed; it is retried if its code, or the worker, says that a retry is useful. Idempotent."""
        if body.code is not None and body.code not in ERROR_CODES:
            raise invalid(f"code must be one of {', '.join(ERROR_CODES)}, got {body.code!r}", "code")

        def failed(job: Job) -> Ack:
            again = retries(body.code, job.attempt) if body.retry is None else body.retry
            delay = body.retry_after if body.retry_after is not None else Backoff().delay(job.attempt)
            outcome = Outcome.RETRY if again and not job.is_last_attempt else Outcome.FAILED
            error, traceback = scrub_text(body.code or body.error, secrets), scrub_text(body.traceback, secrets)
            return Ack(job, outcome, body.took, None, delay, error, message, traceback)

        secrets = (await self._jobs.secrets_of([job_id])).get(job_id, ())
        message = scrub_text(body.message, secrets)
        return await self._finish(node, job_id, body.token, failed, hold=body.hold, reason=message)

    async def _finish(
        self,
        node: RegisteredWorker,
        id: int,
        token: int,
        ack_for: Any,
        *,
        hold: float | None = None,
        reason: str | None = None,
    ) -> m.FinishResponse:
        row = await self._leased_job(node, token, id)
        if row is not None:
            job = Job(id, row["queue"], row["kind"], row["attempt"], row["max_attempts"], token, b"", row["key"])
            if hold:
                await self._hold(job.kind, hold, reason)
            ack: Ack = ack_for(job)
            state: Any = await self._jobs.reports.finish(node.id, ack, last=row["last"])
            if state is not None:
                telemetry.emit("remote.ack", store=m.JOBS, outcomes=[ack.outcome.value])
                await self._update_state(node, claimed=False)
                return m.FinishResponse(id=id, state=state, retry_in=ack.delay if state == "queued" else None)
        reported = await self._session.fetchrow(self._sql["find_report"], node.id, token, id)
        if reported is None:
            raise unknown(f"job {id}")
        if reported["state"] is None:
            raise _lease_lost(node, id, token)
        return m.FinishResponse(id=id, state=reported["state"])

    async def say(self, node: RegisteredWorker, job_id: int, body: m.LogRequest) -> None:
        """Store log lines and the progress of a running job."""
        secrets = (await self._jobs.secrets_of([job_id])).get(job_id, ())
        lines = [hide(line, secrets).replace("\0", "\\0") for line in body.lines]
        note = body.note and hide(body.note, secrets)
        entry = JobLogEntry(stream=body.stream, lines=lines, progress=body.progress, note=note)
        try:
            await self._jobs.say(node.id, _job_stub(job_id, body.token), entry)
        except LeaseLost:
            raise _lease_lost(node, job_id, body.token) from None

    async def note_run(self, node: RegisteredWorker, job_id: int, body: m.RunRequest) -> None:
        """Store the record of a run. Idempotent."""
        spec, result = json_or_none(body.spec, "spec"), json_or_none(body.result, "result")
        run = RunRecord(state=body.state, spec=spec, code=body.code, result=result)
        try:
            await self._jobs.note_run(node.id, _job_stub(job_id, body.token), run)
        except LeaseLost:
            raise _lease_lost(node, job_id, body.token) from None

    async def _update_state(self, node: RegisteredWorker, *, claimed: bool) -> None:
        """Set the worker busy after a claim, or idle once it holds nothing."""
        state = await self._session.fetchval(self._sql["set_state"], node.id, claimed)
        if state is not None:
            self._auth.update_state(node.id, state)
        elif claimed:  # the cached state was wrong
            self._auth.invalidate(node.id)

    async def _leased_job(self, node: RegisteredWorker, token: int, id: Any) -> Any:
        return await self._session.fetchrow(self._sql["leased"], node.id, token, id)

    def _table(self, node: RegisteredWorker, name: str) -> RemoteTableQueue:
        table = self._tables.get(name)
        # Also checked at registration; a control plane of release 0.2 did not.
        if table is None or name not in node.tables or not is_allowed(name, node.token_queues):
            raise invalid(f"worker {node.id} did not register for a table {name!r}", "store")
        return table

    async def _hold(self, kind: str, seconds: float, reason: str | None) -> None:
        await self._jobs.hold(kind, min(seconds, LONGEST), reason)


def _claimed_job(job: Job) -> m.ClaimedJob:
    return m.ClaimedJob(
        id=job.id,
        token=job.token,
        queue=job.queue,
        kind=job.kind,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        args=msgspec.Raw(job.payload or b"null"),
        key=job.key,
        timeout=job.timeout,
        meta=msgspec.Raw(job.meta_json or b"null"),
        trace=job.trace,
        waited=job.waited,
    )


def _job_stub(id: int, token: int) -> Job:
    """Return a job with the fields that a request names."""
    return Job(id, "", "", 0, 0, token, b"")


def _lease_lost(node: RegisteredWorker, id: int, token: int) -> RequestRejected:
    return stale(f"job {id} is not held under token {token} by worker {node.id}; its lease is lost")
