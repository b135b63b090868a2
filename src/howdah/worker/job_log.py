"""The job log: lines, progress and run records that a running job writes.

A handler writes with :func:`job_log` and :func:`progress`, from a coroutine, a thread or a process, on nodes with a
database and on remote workers. Writing never waits and never fails: a :class:`JobLogBuffer` collects the lines and
sends them in batches; lines that come too fast are counted and left out.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Collection, Iterator
from contextvars import ContextVar
from typing import Any, Protocol, get_args

from howdah.errors import HowdahError, LeaseLost
from howdah.job import Job, JobBatch, current
from howdah.loops import Outage, wait
from howdah.redact import handler_secrets, hide
from howdah.store import JobLogEntry, JobLogStore, RunRecord, Stream

log = logging.getLogger("howdah.job")

STREAMS: tuple[Stream, ...] = get_args(Stream)
SEND_INTERVAL = 0.5
"""Seconds between two sends."""
MAX_BUFFERED_LINES = 10_000
"""Buffered lines of one job."""
MAX_BUFFERED_SIZE = 4 * 1024 * 1024
"""Characters in the buffered lines of one job."""
MAX_LINES = 1000
"""Lines in one message."""
MAX_MESSAGE_SIZE = 256 * 1024
LONGEST_LINE = 10_000
LONGEST_NOTE = 500
MAX_MESSAGES = 20
"""Messages in one send: claims and acks use the same connection and the same rate limit."""
FLUSH_TIMEOUT = 3.0
"""Seconds the outcome of a job waits until its log is written."""


class JobLogSink(Protocol):
    """The object through which handlers write to the job log."""

    def write(self, job: Job, entry: JobLogEntry) -> None:
        """Accept an entry. Never waits."""
        ...


sink: ContextVar[JobLogSink | None] = ContextVar("howdah_job_log", default=None)
"""The sink of the handlers that run in this context."""


def job_log(*lines: str, stream: Stream = "log", job: Job | None = None) -> None:
    """Add lines to the log of the running job, or of ``job``, one of a batch. Elsewhere they are only logged."""
    # the store would refuse an unknown stream again and again, and hold up the log lines of the worker's other jobs
    known: Stream = stream if stream in STREAMS else "log"
    write(JobLogEntry(stream=known, lines=[piece for line in lines for piece in _pieces(str(line))]), job)


def progress(share: float, note: str | None = None, job: Job | None = None) -> None:
    """Report the progress of the running job, or of ``job``, one of a batch, from 0 to 1, with an optional note."""
    within = 0.0 if math.isnan(share) else min(1.0, max(0.0, float(share)))
    write(JobLogEntry(progress=within, note=None if note is None else _text(note)[:LONGEST_NOTE]), job)


def write(entry: JobLogEntry, job: Job | None = None) -> None:
    """Write an entry to the log of the running job, or of one of the jobs of the running batch."""
    running, target = current.get(None), sink.get()
    if isinstance(running, JobBatch):
        job = job if any(job is each for each in running.jobs) else None
    else:
        job = running if job is None or job is running else None
    if job is None or target is None:
        for line in entry.lines:
            log.info("%s", line)
        return
    target.write(job, entry)


async def record_run(run: RunRecord) -> None:
    """Store the run record of the running job; does nothing where the store keeps no run records."""
    job, target = current.get(None), sink.get()
    if job is not None and not isinstance(job, JobBatch) and isinstance(target, JobLogBuffer):
        await target.store.record_run(job, run)


class JobLogBuffer:
    """Collects the log entries of the jobs of one worker and sends them. Safe to use from every thread."""

    def __init__(self, store: JobLogStore) -> None:
        self.store = store
        self._buffers: dict[tuple[int, Any], _Buffer] = {}
        self._lock = threading.Lock()
        self._turn = asyncio.Lock()
        self._outage = Outage("job log")

    @property
    def pending(self) -> bool:
        """True if there are entries that are not yet sent."""
        return bool(self._buffers)

    def write(self, job: Job, entry: JobLogEntry) -> None:
        """Add an entry."""
        with self._lock:
            buffer = self._buffers.get((job.token, job.id))
            if buffer is None:
                buffer = self._buffers[job.token, job.id] = _Buffer(job)
            buffer.add(entry)

    async def run(self, stop: asyncio.Event) -> None:
        """Send buffered entries at intervals until ``stop``."""
        while not await wait(stop, SEND_INTERVAL):
            if self._buffers:
                try:
                    await self._send(list(self._buffers), MAX_MESSAGES)
                    self._outage.heal()
                except Exception as error:
                    await wait(stop, self._outage.fail(error))

    async def flush(self, jobs: Collection[Job]) -> None:
        """Send all entries of these jobs, whose outcomes are about to be recorded; gives up after FLUSH_TIMEOUT."""
        keys = [key for job in jobs if (key := (job.token, job.id)) in self._buffers]
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT):
                await self._send(keys, MAX_BUFFERED_LINES)
        except Exception as error:
            self._outage.fail(error)
        with self._lock:
            for key in keys:
                self._buffers.pop(key, None)

    async def _send(self, keys: list[tuple[int, Any]], most: int) -> None:
        for key in keys:
            while most > 0:
                # one at a time: a flush must also wait for a message that is being sent
                async with self._turn:
                    if not await self._send_one(key):
                        break
                most -= 1

    async def _send_one(self, key: tuple[int, Any]) -> bool:
        """Send the next message of one job; returns whether there was one."""
        with self._lock:
            buffer = self._buffers.get(key)
            entry = buffer.take() if buffer else None
            if entry is None:
                self._buffers.pop(key, None)
        if buffer is None or entry is None:
            return False
        try:
            await self.store.write_log(buffer.job, entry)
        except LeaseLost:
            with self._lock:
                self._buffers.pop(key, None)
        except BaseException:
            with self._lock:
                buffer.put_back(entry)
            raise
        return True


class _Buffer:
    """The entries of one job that are not yet sent."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._lines: deque[tuple[Stream, str]] = deque()
        self._size = 0
        self._left_out = 0
        self._progress: JobLogEntry | None = None

    def add(self, entry: JobLogEntry) -> None:
        for line in entry.lines:
            if len(self._lines) >= MAX_BUFFERED_LINES or self._size + len(line) > MAX_BUFFERED_SIZE:
                self._left_out += 1
            else:
                self._lines.append((entry.stream, line))
                self._size += len(line)
        if entry.progress is not None:
            self._progress = entry

    def take(self) -> JobLogEntry | None:
        """Return the next message: as many lines of one stream as fit, and the latest progress."""
        lines: list[str] = []
        size = 0
        stream: Stream = self._lines[0][0] if self._lines else "log"
        while self._lines and self._lines[0][0] == stream and len(lines) < MAX_LINES and size < MAX_MESSAGE_SIZE:
            line = self._lines.popleft()[1]
            lines.append(line)
            size += len(line)
        self._size -= size
        if not self._lines and self._left_out and len(lines) < MAX_LINES:
            lines.append(f"… {self._left_out} lines left out: they came faster than they could be sent …")
            self._left_out = 0
        progress, self._progress = self._progress, None
        if not lines and progress is None:
            return None
        if progress is None:
            return JobLogEntry(stream=stream, lines=lines)
        return JobLogEntry(stream=stream, lines=lines, progress=progress.progress, note=progress.note)

    def put_back(self, entry: JobLogEntry) -> None:
        self._lines.extendleft((entry.stream, line) for line in reversed(entry.lines))
        self._size += sum(map(len, entry.lines))
        if self._progress is None and entry.progress is not None:
            self._progress = entry


def _pieces(text: str) -> Iterator[str]:
    """Split a text into lines that can be stored: no line ends, no NUL, none too long."""
    for line in _text(text).splitlines() or [""]:
        for start in range(0, max(1, len(line)), LONGEST_LINE):
            yield line[start : start + LONGEST_LINE]


def _text(text: str) -> str:
    if secrets := handler_secrets.get():
        text = hide(text, secrets)
    return text.replace("\0", "\\0").encode("utf-8", "replace").decode()


def lease_lost(job: Job) -> HowdahError:
    """Return the error of a log entry for a job whose lease is lost."""
    return LeaseLost(f"the lease of job {job.id} is lost; its log entries are no longer stored")
