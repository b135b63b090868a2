"""Store of a worker without a database: claims, acks and releases over HTTP, with the same guarantees."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from howdah.errors import ConfigError
from howdah.job import Job
from howdah.loops import wait
from howdah.outcome import Ack, Outcome
from howdah.remote import messages as m
from howdah.remote.client import ClaimNumbers, ControlPlaneClient, RejectedByServer, RequestPacer, UnknownWorker
from howdah.remote.reports import INVALID, MAX_BATCH, ReportSender, report_of
from howdah.store import JobLogEntry, JobLogStore, RunRecord, Transaction
from howdah.worker.job_log import lease_lost

log = logging.getLogger("howdah")

T = TypeVar("T")
MAX_RELEASED = 10_000
LONG_POLL = 25.0
"""Seconds that a claim waits at the control plane; proxies cut longer requests."""
POLL = 5.0
"""Seconds until the next claim when long polls return early."""
FIRST_POLL = 0.5
"""Seconds until the next claim after the first long poll that returned early."""
UNCLAIMED_TTL = 1.0
"""Seconds after which jobs of a long poll that the worker did not claim are released: its slots are taken by now."""


class RemoteRegistration(Protocol):
    """Registration of this process at the control plane; changes when it has to register again."""

    client: ControlPlaneClient

    async def register_again(self, stale: int) -> None: ...

    def asked_to_drain(self) -> None: ...


class RemoteStore:
    """Claims and finishes jobs through a control plane."""

    def __init__(
        self, registration: RemoteRegistration, name: str = m.JOBS, *, wait: float = LONG_POLL, poll: float = POLL
    ) -> None:
        self._registration = registration
        self._name = name
        self._long_poll = wait
        self._poll = poll
        self._found: list[Job] = []
        self._empty = False
        """True after a long poll without jobs: the next claim need not ask again."""
        self._early_returns = 0
        """Long polls in a row that returned early."""
        self._limit = 1
        self._room: Mapping[str, int] = {}
        self._woken = asyncio.Event()
        self._claim_pacer, self._poll_pacer = RequestPacer(), RequestPacer()
        self._numbers = ClaimNumbers(name)
        self._reports = ReportSender(name, lambda message: self._send("ack", message, m.AckResponse))
        self._held: dict[int, set[int | str]] = {}
        self._releasing: set[asyncio.Task[int]] = set()

    # ---------------------------------------------------------------- used by the worker

    @property
    def job_log(self) -> JobLogStore:
        """The store of the job logs: this one; it drops the entries of table rows."""
        return self

    async def claim(self, limit: int, room: Mapping[str, int]) -> list[Job]:
        self._limit, self._room = min(limit, MAX_BATCH), room
        if self._found or self._empty:
            found, self._found, self._empty = self._found, [], False
            return found
        jobs = await self._claim(0.0)
        if not jobs:
            self._claim_pacer.back_off()
        return jobs

    async def ack(self, acks: Sequence[Ack], finished: Sequence[int]) -> list[Ack]:
        outcomes = await self._reports.send([report_of(ack) for ack in acks], finished)
        accepted = []
        for ack in acks:
            key = (ack.job.token, ack.job.id)
            outcome = outcomes.get(key)
            ack.postponed = outcome is None and key in self._reports.postponed
            if outcome is not None:
                ack.outcome = ack.outcome if outcome == ack.outcome.value else Outcome(outcome)
                accepted.append(ack)
            if not ack.postponed:
                self.forget([key])
        for token in {*finished} - {ack.job.token for ack in acks if ack.postponed}:
            self._held.pop(token, None)
        return accepted

    async def release(self, tokens: Sequence[int]) -> int:
        held = [m.HeldJob(id=id, token=token) for token in tokens for id in list(self._held.get(token, ()))]
        released = 0
        for start in range(0, max(1, len(held), len(tokens)), MAX_RELEASED):
            part = slice(start, start + MAX_RELEASED)
            message = m.ReleaseRequest(held=held[part], tokens=list(tokens[part]), store=self._name)
            response = await self._send("release", message, m.ReleaseResponse)
            released += response.jobs if response else 0
        for token in tokens:
            self._held.pop(token, None)
        return released

    async def rest(self) -> None:
        """Wait at the control plane for jobs (long poll) and keep them for the next claim."""
        if not self._woken.is_set():
            began = time.monotonic()
            if self._long_poll:
                await self._run_long_poll()
            waited = time.monotonic() - began
            if self._found or (self._long_poll and waited >= 0.75 * min(self._long_poll, self._poll)):
                self._early_returns = 0
            else:  # the long poll returned early: poll instead, with jitter so that workers do not poll together
                self._early_returns += 1
                pause = self._poll if self._early_returns > 1 or not self._long_poll else min(self._poll, FIRST_POLL)
                await wait(self._woken, random.uniform(0.5, 1.0) * pause)  # noqa: S311
                self._empty = False
        self._woken.clear()

    def wake(self) -> None:
        self._woken.set()

    async def transact(self, job: Job, body: Callable[[Transaction], Awaitable[bytes | None]]) -> None:
        raise ConfigError(
            f"job {job.id} ({job.kind}) is transactional, and this worker has no database; use a node that has one"
        )

    async def transact_batch(self, body: Callable[[Transaction], Awaitable[Sequence[Ack]]]) -> Sequence[Ack]:
        raise ConfigError("a transactional batch needs the database, and this worker has none; use a node that has one")

    async def write_log(self, job: Job, entry: JobLogEntry) -> None:
        message = m.LogRequest(
            token=job.token, lines=entry.lines, stream=entry.stream, progress=entry.progress, note=entry.note
        )
        try:
            await self._send_about("log", job, message)
        except RejectedByServer as error:
            if error.status not in INVALID:
                raise
            if len(entry.lines) > 1:  # the request is too large, or one line cannot be stored
                half = len(entry.lines) // 2
                await self.write_log(job, JobLogEntry(stream=entry.stream, lines=entry.lines[:half]))
                await self.write_log(job, msgspec.structs.replace(entry, lines=entry.lines[half:]))
            else:
                log.warning("a line that job %s logged is left out: %s", job.id, error)

    async def record_run(self, job: Job, run: RunRecord) -> None:
        spec, result = msgspec.Raw(run.spec or b"null"), msgspec.Raw(run.result or b"null")
        message = m.RunRequest(token=job.token, state=run.state, spec=spec, code=run.code, result=result)
        await self._send_about("run", job, message)

    # ---------------------------------------------------------------- used by the node

    def held(self) -> list[m.HeldJob]:
        """Return all held jobs, for the heartbeat; safe to call from another thread."""
        return [m.HeldJob(id=id, token=token) for token, ids in list(self._held.items()) for id in list(ids)]

    def holds(self, token: int, id: int | str) -> bool:
        """Return whether a job or row is held."""
        return id in self._held.get(token, ())

    def forget(self, keys: Sequence[tuple[int, int | str]]) -> None:
        """Remove jobs or rows from those held."""
        for token, id in keys:
            if ids := self._held.get(token):
                ids.discard(id)
                if not ids:
                    del self._held[token]

    def forget_all(self) -> None:
        """Remove everything held: the registration is gone."""
        self._found, self._empty = [], False
        self._held.clear()

    async def close(self) -> None:
        """Release jobs of the last long poll that the worker did not claim."""
        if self._found:
            self._release_unclaimed()
        if self._releasing:
            await asyncio.wait(self._releasing)

    # ---------------------------------------------------------------- requests

    async def _claim(self, seconds: float) -> list[Job]:
        if not await (self._poll_pacer if seconds else self._claim_pacer).acquire(self._woken):
            return []
        message = self._numbers.claim(self._limit, seconds, self._room, list(self._held))
        try:
            response = await self._send("claim", message, m.ClaimResponse, wait=seconds)
        except BaseException as error:
            if self._numbers.is_unknown(error):
                return await self._claim(seconds)
            self._numbers.response_lost()
            if self._numbers.is_late(error):
                return []
            raise
        jobs = [job_of(each) for each in response.jobs] if response else []
        for job in jobs:
            self._held.setdefault(job.token, set()).add(job.id)
        if self._registration.client.draining:
            self._registration.asked_to_drain()
        return jobs

    async def _run_long_poll(self) -> None:
        # Jitter: workers that reconnect together after an outage would otherwise poll in step for ever.
        polling = asyncio.create_task(self._claim(self._long_poll * random.uniform(0.8, 1.0)))  # noqa: S311
        waking = asyncio.create_task(self._woken.wait())
        try:
            await asyncio.wait({polling, waking}, return_when=asyncio.FIRST_COMPLETED)
            if polling.done():
                self._keep(polling.result())
        finally:
            waking.cancel()
            if not polling.done():
                polling.cancel()  # the control plane sees the closed connection and claims nothing
                await asyncio.gather(polling, return_exceptions=True)

    def _keep(self, jobs: list[Job]) -> None:
        self._found += jobs
        self._empty = not jobs
        if jobs:
            asyncio.get_running_loop().call_later(UNCLAIMED_TTL, self._release_unclaimed, jobs[0].token)

    def _release_unclaimed(self, token: int | None = None) -> None:
        """Release jobs of a long poll that the worker did not claim; ``token``: only if they are of this lease."""
        if not self._found or token not in (None, self._found[0].token):
            return
        tokens, self._found = list({job.token for job in self._found}), []
        releasing = asyncio.create_task(self._try_release(tokens))
        self._releasing.add(releasing)
        releasing.add_done_callback(self._releasing.discard)

    async def _try_release(self, tokens: list[int]) -> int:
        try:
            return await self.release(tokens)
        except Exception as error:
            log.warning("could not release %d leases (%s); they expire and the jobs run again", len(tokens), error)
            for token in tokens:
                self._held.pop(token, None)
            return 0

    async def _send(self, verb: str, message: m.Message, gives: type[T], *, wait: float = 0.0) -> T | None:
        client = self._registration.client
        node = client.node
        try:
            return await client.send(verb, message, gives, wait=wait)
        except UnknownWorker:
            await self._registration.register_again(node)
            raise

    async def _send_about(self, verb: str, job: Job, message: m.Message) -> None:
        """Send a request about a job. Only the error ``STALE`` means that its lease is lost."""
        if self._name != m.JOBS:
            return
        try:
            await self._send(f"{verb}/{job.id}", message, m.ReleaseResponse)
        except RejectedByServer as error:
            if (error.status, error.code) == (409, "STALE"):
                raise lease_lost(job) from None
            raise RejectedByServer(
                f"the {verb} of job {job.id} is rejected: {error}", error.status, error.code
            ) from None


def job_of(claimed: m.ClaimedJob) -> Job:
    """Convert a claimed job to the job that the worker runs."""
    return Job(
        claimed.id,
        claimed.queue,
        claimed.kind,
        claimed.attempt,
        claimed.max_attempts,
        claimed.token,
        bytes(claimed.args),
        claimed.key,
        claimed.timeout,
        None if bytes(claimed.meta) == b"null" else bytes(claimed.meta),
        claimed.trace,
        claimed.waited,
    )
