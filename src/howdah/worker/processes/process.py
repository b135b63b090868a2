"""The pool of processes that run handlers, one job at a time each, and can be killed."""

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

from howdah.child_process import exit_description
from howdah.errors import HowdahError
from howdah.handler import Handler
from howdah.job import Job
from howdah.outcome import Cancel, FailureReport, Snooze
from howdah.worker.job_log import write as write_log
from howdah.worker.processes.wire import ProcessReply, ProcessRequest, place_of, read_frame, write_frame

log = logging.getLogger("howdah")

STARTS = 3
"""Processes tried for one job before it is snoozed."""
WAIT = 5.0
"""Seconds a job is snoozed when no process could start."""
READ_TIMEOUT = 1.0
"""Seconds to read the last messages of a dead process; a fork of it may hold the socket open forever."""
START_WITHIN = 60.0
"""Seconds a process has to start Python, read the job and start it."""
CLOSE_WITHIN = 5.0
"""Seconds a process has to end after it closed its socket: it cannot report an outcome any more."""
KILL_WITHIN = 5.0
"""Seconds a guard has to end its process before the guard itself is killed."""


class ProcessDied(HowdahError):
    """The process that ran the handler ended before the handler did."""


class ProcessNotStarted(HowdahError):
    """The process ended, or could not start, before it started the job."""


class FailedInProcess(Exception):
    """The handler failed in its process, with this ``report``."""

    def __init__(self, report: FailureReport) -> None:
        super().__init__(report.message)
        self.report = report


class ResultNotStored(msgspec.Struct):
    """Returned for a finished job whose result cannot be stored, with the reason."""

    message: str


class ProcessPool:
    """Up to ``most`` processes, kept warm between jobs."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._idle: list[HandlerProcess] = []
        self._all: set[HandlerProcess] = set()

    async def run(
        self, handler: Handler, job: Job, largest_result: int, begun: Callable[[], None] = lambda: None
    ) -> Any:
        """Run the handler in a process; cancelling this kills the process.

        A job whose process ends before it started the job runs in another one, without a charge. ``begun`` is called
        when a process starts the job: starting a process does not count as the handler's time.
        """
        error: Exception | None = None
        for _ in range(STARTS):
            try:
                return _outcome(await self._ask(handler, job, largest_result, begun))
            except (ProcessNotStarted, OSError) as failed:
                error = failed
        log.error("job %s (%s) is snoozed: no process could start: %s", job.id, job.kind, error)
        return Snooze(WAIT)

    async def close(self) -> None:
        """End every process."""
        children, self._all = self._all, set()
        self._idle.clear()
        for child in children:
            child.kill()
        await asyncio.gather(*(child.gone() for child in children))

    async def _ask(self, handler: Handler, job: Job, largest_result: int, begun: Callable[[], None]) -> ProcessReply:
        child = await self._take()
        try:
            answer = await child.ask(handler, job, largest_result, begun)
        except BaseException:
            await self._end(child)
            raise
        self._idle.append(child)
        return answer

    async def _take(self) -> HandlerProcess:
        while self._idle:
            child = self._idle.pop()
            if child.lives:
                return child
            await self._end(child)
        child = await HandlerProcess.start()
        self._all.add(child)
        return child

    async def _end(self, child: HandlerProcess) -> None:
        self._all.discard(child)
        child.kill()
        await asyncio.shield(child.gone())


class HandlerProcess:
    """One process, its guard (the parent process), and the sockets to both."""

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
        # the guard exits as the process did; the socket alone does not show it, because a fork may hold it open
        self._ended = asyncio.ensure_future(guard.wait())

    @classmethod
    async def start(cls) -> HandlerProcess:
        """Start a process that waits for its first job."""
        ours, theirs = socket.socketpair()
        lifeline, guarded = socket.socketpair()
        try:
            with theirs, guarded:
                guard = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "howdah.worker.processes.child",
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
        """True if it can run a job, as far as is known."""
        return not self._ended.done() and not self._reader.at_eof()

    async def ask(self, handler: Handler, job: Job, largest_result: int, begun: Callable[[], None]) -> ProcessReply:
        """Run a job; raises :class:`ProcessNotStarted` if the process ended before it started the job."""
        number = next(self._numbers)
        question = ProcessRequest(number, place_of(handler.function), handler.kind, job, largest_result)
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
                await asyncio.wait({talking}, timeout=READ_TIMEOUT)
            if talking.done():
                if (answer := talking.result()) is not None:
                    return answer
                await asyncio.wait({self._ended}, timeout=CLOSE_WITHIN)
        finally:
            talking.cancel()
        how = exit_description(self._ended.result()) if self._ended.done() else "closed its socket to the worker"
        if not started.done():
            raise ProcessNotStarted(f"the process {how if talking.done() or self._ended.done() else 'did not answer'}")
        hint = ", maybe out of memory" if how.endswith("SIGKILL") else ""
        raise ProcessDied(f"the process running the handler {how}{hint}")

    def kill(self) -> None:
        """End the process and all its children: the guard does that when its lifeline is closed."""
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
        # a guard that was killed itself may not have killed its process
        if self._runner and self._ended.result() == -signal.SIGKILL:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._runner, signal.SIGKILL)

    async def _talk(self, number: int, message: bytes, started: asyncio.Future[None]) -> ProcessReply | None:
        """Send the request and return its reply; ``None`` if the socket was closed before."""
        try:
            await write_frame(self._writer, message)
            while True:
                answer = msgspec.msgpack.decode(await read_frame(self._reader), type=ProcessReply)
                if answer.number != number:
                    continue  # from a fork of an earlier job
                if answer.started:
                    self._runner = answer.started
                    if not started.done():
                        started.set_result(None)
                elif answer.log_entry:
                    write_log(answer.log_entry)
                else:
                    return answer
        except (EOFError, OSError):
            return None


def _outcome(answer: ProcessReply) -> Any:
    if answer.report is not None:
        raise FailedInProcess(answer.report)
    if answer.snooze is not None:
        return Snooze(answer.snooze)
    if answer.cancel is not None:
        return Cancel(answer.cancel)
    if answer.not_stored is not None:
        return ResultNotStored(answer.not_stored)
    return None if answer.result is None else msgspec.Raw(answer.result)
