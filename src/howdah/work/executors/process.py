"""Handlers in processes of their own, one job at a time each, that can be killed."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec

from howdah.errors import HowdahError
from howdah.exits import ended
from howdah.handler import Handler
from howdah.job import Job
from howdah.journal import speak
from howdah.outcome import Cancel, Snooze
from howdah.work.executors.wire import Answer, Question, place_of, read_frame, write_frame
from howdah.work.report import Report

log = logging.getLogger("howdah")

STARTS = 3
"""Processes tried for one job before it waits."""
WAIT = 5.0
"""Seconds a job waits when no process could start."""
LAST_WORDS = 1.0
"""Seconds to read what a dead process had written; a fork of it may hold the socket open for ever."""
START_WITHIN = 60.0
"""Seconds a process has to begin with a job: to start Python, and to read the job."""
CLOSE_WITHIN = 5.0
"""Seconds a process has to end once it closed its socket; its outcome could not be told any more."""
KILL_WITHIN = 5.0
"""Seconds a guard has to end its process before the guard itself is killed."""


class ProcessDied(HowdahError):
    """The process running the handler ended under it."""


class NotStarted(HowdahError):
    """The process ended, or could not start, before it began with the job."""


class FailedThere(Exception):
    """The handler failed in its own process; ``report`` says how."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.message)
        self.report = report


class NotStored(msgspec.Struct):
    """The result of a job that is done, and why it cannot be kept."""

    message: str


class Processes:
    """Up to ``most`` processes, kept warm between jobs."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._idle: list[Child] = []
        self._all: set[Child] = set()

    async def run(
        self, handler: Handler, job: Job, largest_result: int, begun: Callable[[], None] = lambda: None
    ) -> Any:
        """Run the handler in a process; cancelling this kills the process.

        A process that ends before it began with the job costs the job nothing: it runs in another one. ``begun`` is
        called when a process begins with the job: to start one is not work of the handler.
        """
        error: Exception | None = None
        for _ in range(STARTS):
            try:
                return _outcome(await self._ask(handler, job, largest_result, begun))
            except (NotStarted, OSError) as failed:
                error = failed
        log.error("job %s (%s) waits: no process for it could start: %s", job.id, job.kind, error)
        return Snooze(WAIT)

    async def close(self) -> None:
        """End every process."""
        children, self._all = self._all, set()
        self._idle.clear()
        for child in children:
            child.kill()
        await asyncio.gather(*(child.gone() for child in children))

    async def _ask(self, handler: Handler, job: Job, largest_result: int, begun: Callable[[], None]) -> Answer:
        child = await self._take()
        try:
            answer = await child.ask(handler, job, largest_result, begun)
        except BaseException:
            await self._end(child)
            raise
        self._idle.append(child)
        return answer

    async def _take(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.lives:
                return child
            await self._end(child)
        child = await Child.start()
        self._all.add(child)
        return child

    async def _end(self, child: Child) -> None:
        self._all.discard(child)
        child.kill()
        await asyncio.shield(child.gone())


class Child:
    """One process, the guard that is its parent, and the sockets to both."""

    def __init__(
        self,
        guard: asyncio.subprocess.Process,
        lifeline: socket.socket,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._guard = guard
        self._lifeline = lifeline
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)
        self._runner = 0
        # the guard ends as the process did, and the socket alone does not tell: a fork may hold it open
        self._ended = asyncio.ensure_future(guard.wait())

    @classmethod
    async def start(cls) -> Child:
        """Start a process that waits for its first job."""
        ours, theirs = socket.socketpair()
        lifeline, guarded = socket.socketpair()
        try:
            with theirs, guarded:
                guard = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "howdah.work.executors.child",
                    str(theirs.fileno()),
                    str(guarded.fileno()),
                    str(os.getpid()),
                    pass_fds=(theirs.fileno(), guarded.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    start_new_session=True,  # a Ctrl-C in the terminal is for the node alone
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                )
            reader, writer = await asyncio.open_connection(sock=ours)
        except BaseException:
            ours.close()
            lifeline.close()
            raise
        return cls(guard, lifeline, reader, writer)

    @property
    def lives(self) -> bool:
        """Whether it can be given a job, as far as is known."""
        return not self._ended.done() and not self._reader.at_eof()

    async def ask(self, handler: Handler, job: Job, largest_result: int, begun: Callable[[], None]) -> Answer:
        """Run a job; :class:`NotStarted` if the process ended before it began with it."""
        number = next(self._numbers)
        question = Question(number, place_of(handler.function), handler.kind, job, largest_result)
        message = msgspec.msgpack.encode(question)
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        talking = asyncio.ensure_future(self._talk(number, message, started))
        try:
            first: set[asyncio.Future[Any]] = {started, talking, self._ended}
            await asyncio.wait(first, timeout=START_WITHIN, return_when=asyncio.FIRST_COMPLETED)
            if started.done():
                begun()
                await asyncio.wait({talking, self._ended}, return_when=asyncio.FIRST_COMPLETED)
            if not talking.done() and self._ended.done():
                await asyncio.wait({talking}, timeout=LAST_WORDS)
            if talking.done():
                if (answer := talking.result()) is not None:
                    return answer
                await asyncio.wait({self._ended}, timeout=CLOSE_WITHIN)
        finally:
            talking.cancel()
        how = ended(self._ended.result()) if self._ended.done() else "closed its socket to the worker"
        if not started.done():
            raise NotStarted(f"the process {how if talking.done() or self._ended.done() else 'did not answer'}")
        hint = ", maybe out of memory" if how.endswith("SIGKILL") else ""
        raise ProcessDied(f"the process running the handler {how}{hint}")

    def kill(self) -> None:
        """End the process and all it started: without its lifeline the guard does so."""
        self._lifeline.close()
        self._writer.close()

    async def gone(self) -> None:
        """Wait until it has ended."""
        try:
            async with asyncio.timeout(KILL_WITHIN):
                await asyncio.shield(self._ended)
        except TimeoutError:
            self._guard.kill()
            await self._ended
        if self._runner and self._ended.result() == -signal.SIGKILL:  # maybe the guard, so that it killed nothing
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._runner, signal.SIGKILL)

    async def _talk(self, number: int, message: bytes, started: asyncio.Future[None]) -> Answer | None:
        """Send the question and return its answer; nothing if the socket closed before it came."""
        try:
            await write_frame(self._writer, message)
            while True:
                answer = msgspec.msgpack.decode(await read_frame(self._reader), type=Answer)
                if answer.number != number:
                    continue  # said by a fork of an earlier job
                if answer.started:
                    self._runner = answer.started
                    if not started.done():
                        started.set_result(None)
                elif answer.said:
                    speak(answer.said)
                else:
                    return answer
        except (EOFError, OSError):
            return None


def _outcome(answer: Answer) -> Any:
    if answer.report is not None:
        raise FailedThere(answer.report)
    if answer.snooze is not None:
        return Snooze(answer.snooze)
    if answer.cancel is not None:
        return Cancel(answer.cancel)
    if answer.not_stored is not None:
        return NotStored(answer.not_stored)
    return None if answer.result is None else msgspec.Raw(answer.result)
