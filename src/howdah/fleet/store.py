"""RemoteStore: the store of a worker without a database; the same promises, over HTTP."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from howdah.errors import ConfigError
from howdah.fleet import messages as m
from howdah.fleet.claim_numbers import ClaimNumbers
from howdah.fleet.client import Client, NotKnown, Turned
from howdah.fleet.ease import Ease
from howdah.fleet.outgoing import report_of
from howdah.fleet.reports import LARGEST_BATCH, UNFIT, Reports
from howdah.fleet.wire import job_of
from howdah.job import Job
from howdah.journal import Run, Said, lost
from howdah.outcome import Ack, Outcome
from howdah.service import wait
from howdah.store import Transaction

log = logging.getLogger("howdah")

T = TypeVar("T")
MOST_RELEASED = 10_000
WAIT = 25.0
"""Seconds a claim waits at the control plane for work; proxies cut longer ones."""
POLL = 5.0
"""Seconds until the next look when the control plane lets nobody wait."""
SOON = 0.5
"""Seconds until the next look when it did so until now: it may have had a reason."""
UNWANTED = 1.0
"""Seconds after which what came and was not asked for goes back; the slots it was for are taken."""


class Membership(Protocol):
    """Who this worker is to the control plane; may change when it must register again."""

    client: Client

    async def join_again(self, stale: int) -> None: ...

    def asked_to_drain(self) -> None: ...


class RemoteStore:
    """Claims, acks and waits through a control plane."""

    def __init__(self, member: Membership, name: str = m.JOBS, *, wait: float = WAIT, poll: float = POLL) -> None:
        self._member = member
        self._name = name
        self._wait = wait
        self._poll = poll
        self._found: list[Job] = []
        self._nothing = False
        """The control plane has just said so."""
        self._let_go = 0
        """So many times in a row we were not kept waiting."""
        self._wanted = 1
        self._room: Mapping[str, int] = {}
        self._rung = asyncio.Event()
        self._claims, self._waits = Ease(), Ease()
        self._numbers = ClaimNumbers(name)
        self._reports = Reports(name, lambda message: self._tell("ack", message, m.Acked))
        self._held: dict[int, set[int | str]] = {}
        self._returning: set[asyncio.Task[int]] = set()

    # ---------------------------------------------------------------- what a worker asks

    async def claim(self, most: int, room: Mapping[str, int]) -> list[Job]:
        self._wanted, self._room = min(most, LARGEST_BATCH), room
        if self._found or self._nothing:
            found, self._found, self._nothing = self._found, [], False
            return found
        jobs = await self._claim(0.0)
        if not jobs:
            self._claims.slower()
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
        held = [m.Held(id=id, token=token) for token in tokens for id in list(self._held.get(token, ()))]
        released = 0
        for start in range(0, max(1, len(held), len(tokens)), MOST_RELEASED):
            part = slice(start, start + MOST_RELEASED)
            message = m.Release(held=held[part], tokens=list(tokens[part]), store=self._name)
            said = await self._tell("release", message, m.Released)
            released += said.jobs if said else 0
        for token in tokens:
            self._held.pop(token, None)
        return released

    async def rest(self) -> None:
        """Wait at the control plane; what comes is kept for the next claim."""
        if not self._rung.is_set():
            began = time.monotonic()
            if self._wait:
                await self._wait_there()
            waited = time.monotonic() - began
            if self._found or (self._wait and waited >= 0.75 * min(self._wait, self._poll)):
                self._let_go = 0
            else:  # nobody let us wait: look now and then, not all workers at once
                self._let_go += 1
                pause = self._poll if self._let_go > 1 or not self._wait else min(self._poll, SOON)
                await wait(self._rung, random.uniform(0.5, 1.0) * pause)  # noqa: S311
                self._nothing = False
        self._rung.clear()

    def wake(self) -> None:
        self._rung.set()

    async def transact(self, job: Job, body: Callable[[Transaction], Awaitable[bytes | None]]) -> None:
        raise ConfigError(
            f"job {job.id} ({job.kind}) is transactional, and this worker has no database; use a node that has one"
        )

    async def say(self, job: Job, said: Said) -> None:
        message = m.LogLines(
            token=job.token, lines=said.lines, stream=said.stream, progress=said.progress, note=said.note
        )
        try:
            await self._tell_of("log", job, message)
        except Turned as error:
            if error.status not in UNFIT:
                raise
            if len(said.lines) > 1:  # too much at once, or one line that cannot be kept
                half = len(said.lines) // 2
                await self.say(job, Said(stream=said.stream, lines=said.lines[:half]))
                await self.say(job, msgspec.structs.replace(said, lines=said.lines[half:]))
            else:
                log.warning("a line that job %s logged is left out: %s", job.id, error)

    async def note_run(self, job: Job, run: Run) -> None:
        spec, result = msgspec.Raw(run.spec or b"null"), msgspec.Raw(run.result or b"null")
        message = m.RunNote(token=job.token, state=run.state, spec=spec, code=run.code, result=result)
        await self._tell_of("run", job, message)

    # ---------------------------------------------------------------- what the conductor asks

    def held(self) -> list[m.Held]:
        """What is in hand, for the heartbeat; safe to call from another thread."""
        return [m.Held(id=id, token=token) for token, ids in list(self._held.items()) for id in list(ids)]

    def holds(self, token: int, id: int | str) -> bool:
        """Whether this is in hand."""
        return id in self._held.get(token, ())

    def forget(self, keys: Sequence[tuple[int, int | str]]) -> None:
        """These are no longer ours."""
        for token, id in keys:
            if ids := self._held.get(token):
                ids.discard(id)
                if not ids:
                    del self._held[token]

    def give_up(self, tokens: Iterable[int]) -> None:
        """These leases are no longer ours."""
        for token in tokens:
            self._held.pop(token, None)

    def forget_all(self) -> None:
        """Nothing is ours any more."""
        self._found, self._nothing = [], False
        self._held.clear()

    async def close(self) -> None:
        """Hand back what came last and nobody took."""
        if self._found:
            self._give_back()
        if self._returning:
            await asyncio.wait(self._returning)

    # ---------------------------------------------------------------- inside

    async def _claim(self, seconds: float) -> list[Job]:
        if not await (self._waits if seconds else self._claims).turn(self._rung):
            return []
        message = self._numbers.claim(self._wanted, seconds, self._room, list(self._held))
        try:
            said = await self._tell("claim", message, m.Claims, wait=seconds)
        except BaseException as error:
            if self._numbers.is_unknown(error):
                return await self._claim(seconds)
            self._numbers.unanswered()
            if self._numbers.is_late(error):
                return []
            raise
        jobs = [job_of(each) for each in said.jobs] if said else []
        for job in jobs:
            self._held.setdefault(job.token, set()).add(job.id)
        if self._member.client.draining:
            self._member.asked_to_drain()
        return jobs

    async def _wait_there(self) -> None:
        # not all for the same time: workers that came back together after an outage would come together ever after
        asking = asyncio.create_task(self._claim(self._wait * random.uniform(0.8, 1.0)))  # noqa: S311
        ringing = asyncio.create_task(self._rung.wait())
        try:
            await asyncio.wait({asking, ringing}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                self._keep(asking.result())
        finally:
            ringing.cancel()
            if not asking.done():
                asking.cancel()  # the control plane sees that nobody waits any more, and claims nothing
                await asyncio.gather(asking, return_exceptions=True)

    def _keep(self, jobs: list[Job]) -> None:
        self._found += jobs
        self._nothing = not jobs
        if jobs:
            asyncio.get_running_loop().call_later(UNWANTED, self._give_back, jobs[0].token)

    def _give_back(self, token: int | None = None) -> None:
        """Hand back what came and nobody took; ``token``: only if it is still that."""
        if not self._found or token not in (None, self._found[0].token):
            return
        tokens, self._found = list({job.token for job in self._found}), []
        returning = asyncio.create_task(self._release_quietly(tokens))
        self._returning.add(returning)
        returning.add_done_callback(self._returning.discard)

    async def _release_quietly(self, tokens: list[int]) -> int:
        try:
            return await self.release(tokens)
        except Exception as error:
            log.warning("could not hand back %d leases (%s); they run out by themselves", len(tokens), error)
            for token in tokens:
                self._held.pop(token, None)
            return 0

    async def _tell(self, verb: str, message: m.Message, gives: type[T], *, wait: float = 0.0) -> T | None:
        client = self._member.client
        node = client.node
        try:
            return await client.tell(verb, message, gives, wait=wait)
        except NotKnown:
            await self._member.join_again(node)
            raise

    async def _tell_of(self, verb: str, job: Job, message: m.Message) -> None:
        """Say something of a job. Only the answer that its lease is lost means that; a refusal is an ordinary error."""
        if self._name != m.JOBS:
            return
        try:
            await self._tell(f"{verb}/{job.id}", message, m.Released)
        except Turned as error:
            if (error.status, error.code) == (409, "STALE"):
                raise lost(job) from None
            raise Turned(f"the {verb} of job {job.id} is refused: {error}", error.status, error.code) from None
