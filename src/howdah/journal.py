"""Journal: what a running job says of itself: lines, how far it is, and the record of a run.

A handler speaks with :func:`job_log` and :func:`progress`, from a coroutine, a thread or a process of its own, and need
not know whether its node has the database or works over HTTP. Speaking never waits and never fails: lines gather in a
:class:`Mouth` and go out in batches; what a handler says too fast is counted and left out.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from howdah.errors import HowdahError, LeaseLost
from howdah.job import Job, current
from howdah.scrub import hide, told
from howdah.service import Outage, wait

log = logging.getLogger("howdah.job")

Stream = Literal["stdout", "stderr", "log"]
EVERY = 0.5
"""Seconds between two looks for something to send."""
MOST_WAITING = 10_000
"""Lines of one job that may wait to be sent."""
LARGEST_WAITING = 4 * 1024 * 1024
"""Characters of them."""
MOST_LINES = 1000
"""Lines in one message."""
LARGEST_MESSAGE = 256 * 1024
LONGEST_LINE = 10_000
LONGEST_NOTE = 500
MOST_MESSAGES = 20
"""Messages sent at one look: claims and reports use the same connection, and the same allowance."""
LAST_WORDS = 3.0
"""Seconds the outcome of a job waits for what it said to be kept."""


class Said(msgspec.Struct, kw_only=True):
    """Something a job said: lines of one stream, or how far it is, or both."""

    stream: Stream = "log"
    lines: list[str] = []
    progress: float | None = None
    note: str | None = None


class Run(msgspec.Struct, kw_only=True):
    """The record of one run: when it begins ``running`` with its spec, when it ends with what came of it."""

    state: Literal["running", "done", "failed"]
    spec: bytes | None = None
    """JSON."""
    code: str | None = None
    result: bytes | None = None
    """JSON."""


@runtime_checkable
class Journal(Protocol):
    """A store that keeps what its jobs say. Both raise :class:`LeaseLost` when the job is no longer ours."""

    async def say(self, job: Job, said: Said) -> None:
        """Keep something a running job said."""
        ...

    async def note_run(self, job: Job, run: Run) -> None:
        """Keep the record of a run of a running job."""
        ...


class Voice(Protocol):
    """What a handler speaks through."""

    def speak(self, job: Job, said: Said) -> None:
        """Take this along. Never waits."""
        ...


voice: ContextVar[Voice | None] = ContextVar("howdah_voice", default=None)
"""What the handlers that start here speak through."""


def job_log(*lines: str, stream: Stream = "log") -> None:
    """Add lines to the log of the job whose handler is running here. Outside of one they are only logged."""
    speak(Said(stream=stream, lines=[piece for line in lines for piece in _pieces(str(line))]))


def progress(share: float, note: str | None = None) -> None:
    """Say how far the job whose handler is running here is, from 0 to 1, and what it is at."""
    within = 0.0 if math.isnan(share) else min(1.0, max(0.0, float(share)))
    speak(Said(progress=within, note=None if note is None else _text(note)[:LONGEST_NOTE]))


def speak(said: Said) -> None:
    """Pass on what the job whose handler is running here says."""
    job, mouth = current.get(None), voice.get()
    if job is None or mouth is None:
        for line in said.lines:
            log.info("%s", line)
        return
    mouth.speak(job, said)


async def note_run(run: Run) -> None:
    """Keep the record of the run the job here is; where nothing keeps records, nothing happens."""
    job, mouth = current.get(None), voice.get()
    if job is not None and isinstance(mouth, Mouth):
        await mouth.journal.note_run(job, run)


class Mouth:
    """Gathers what the jobs of one worker say, and sends it. Safe to speak to from every thread."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._waiting: dict[tuple[int, Any], _Waiting] = {}
        self._lock = threading.Lock()
        self._turn = asyncio.Lock()
        self._outage = Outage("job log")

    @property
    def speaking(self) -> bool:
        """Whether something was said that nobody has been told yet."""
        return bool(self._waiting)

    def speak(self, job: Job, said: Said) -> None:
        """Take this along."""
        with self._lock:
            waiting = self._waiting.get((job.token, job.id))
            if waiting is None:
                waiting = self._waiting[job.token, job.id] = _Waiting(job)
            waiting.add(said)

    async def run(self, stop: asyncio.Event) -> None:
        """Send what was said, now and then, until ``stop``."""
        while not await wait(stop, EVERY):
            if self._waiting:
                try:
                    await self._send(list(self._waiting), MOST_MESSAGES)
                    self._outage.heal()
                except Exception as error:
                    await wait(stop, self._outage.fail(error))

    async def last_words(self, jobs: Collection[Job]) -> None:
        """Send all that these jobs said, since their outcome is about to be recorded. Gives up after a while."""
        keys = [key for job in jobs if (key := (job.token, job.id)) in self._waiting]
        try:
            async with asyncio.timeout(LAST_WORDS):
                await self._send(keys, MOST_WAITING)
        except Exception as error:
            self._outage.fail(error)
        with self._lock:
            for key in keys:
                self._waiting.pop(key, None)

    async def _send(self, keys: list[tuple[int, Any]], most: int) -> None:
        for key in keys:
            while most > 0:
                # in turn: last words must also wait for what is just on its way
                async with self._turn:
                    if not await self._send_one(key):
                        break
                most -= 1

    async def _send_one(self, key: tuple[int, Any]) -> bool:
        """Send the next message of one job; says whether there was one."""
        with self._lock:
            waiting = self._waiting.get(key)
            said = waiting.take() if waiting else None
            if said is None:
                self._waiting.pop(key, None)
        if waiting is None or said is None:
            return False
        try:
            await self.journal.say(waiting.job, said)
        except LeaseLost:
            with self._lock:
                self._waiting.pop(key, None)
        except BaseException:
            with self._lock:
                waiting.put_back(said)
            raise
        return True


class _Waiting:
    """What one job said and nobody has been told yet."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._said: deque[tuple[Stream, str]] = deque()
        self._size = 0
        self._left_out = 0
        self._progress: Said | None = None

    def add(self, said: Said) -> None:
        for line in said.lines:
            if len(self._said) >= MOST_WAITING or self._size + len(line) > LARGEST_WAITING:
                self._left_out += 1
            else:
                self._said.append((said.stream, line))
                self._size += len(line)
        if said.progress is not None:
            self._progress = said

    def take(self) -> Said | None:
        """The next message: as many lines of one stream as fit, and the last word on how far it is."""
        lines: list[str] = []
        size = 0
        stream: Stream = self._said[0][0] if self._said else "log"
        while self._said and self._said[0][0] == stream and len(lines) < MOST_LINES and size < LARGEST_MESSAGE:
            line = self._said.popleft()[1]
            lines.append(line)
            size += len(line)
        self._size -= size
        if not self._said and self._left_out and len(lines) < MOST_LINES:
            lines.append(f"… {self._left_out} lines left out: they came faster than they could be sent …")
            self._left_out = 0
        far, self._progress = self._progress, None
        if not lines and far is None:
            return None
        if far is None:
            return Said(stream=stream, lines=lines)
        return Said(stream=stream, lines=lines, progress=far.progress, note=far.note)

    def put_back(self, said: Said) -> None:
        self._said.extendleft((said.stream, line) for line in reversed(said.lines))
        self._size += sum(map(len, said.lines))
        if self._progress is None and said.progress is not None:
            self._progress = said


def _pieces(text: str) -> Iterator[str]:
    """Lines as they can be kept: without line ends, without NUL, none too long."""
    for line in _text(text).splitlines() or [""]:
        for start in range(0, max(1, len(line)), LONGEST_LINE):
            yield line[start : start + LONGEST_LINE]


def _text(text: str) -> str:
    if secrets := told.get():
        text = hide(text, secrets)
    return text.replace("\0", "\\0").encode("utf-8", "replace").decode()


def lost(job: Job) -> HowdahError:
    """The job is no longer ours, so nobody listens to it."""
    return LeaseLost(f"job {job.id} is no longer ours; what it says is not kept")
