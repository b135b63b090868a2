"""Handlers in processes of their own, one job at a time each, that can be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from typing import Any

import msgspec

from howdah.errors import HowdahError
from howdah.handler import Handler
from howdah.job import Job
from howdah.journal import speak
from howdah.outcome import Cancel, Snooze
from howdah.work.executors.wire import Answer, Question, place_of, read_frame, write_frame
from howdah.work.report import Report


class ProcessDied(HowdahError):
    """The process running the handler ended under it."""


class FailedThere(Exception):
    """The handler failed in its own process; ``report`` says how."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.message)
        self.report = report


class Processes:
    """Up to ``most`` children, kept warm between jobs."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._idle: list[Child] = []
        self._all: set[Child] = set()

    async def run(self, handler: Handler, job: Job) -> Any:
        """Run the handler in a child; cancelling this kills the child."""
        child = self._idle.pop() if self._idle else await self._spawn()
        try:
            answer = await child.ask(handler, job)
        except BaseException:
            await self._kill(child)
            raise
        self._idle.append(child)
        if answer.report is not None:
            raise FailedThere(answer.report)
        if answer.snooze is not None:
            return Snooze(answer.snooze)
        if answer.cancel is not None:
            return Cancel(answer.cancel)
        return answer.value

    def close(self) -> None:
        """Kill every child."""
        for child in self._all:
            child.kill()
        self._all.clear()
        self._idle.clear()

    async def _spawn(self) -> Child:
        child = await Child.start()
        self._all.add(child)
        return child

    async def _kill(self, child: Child) -> None:
        self._all.discard(child)
        child.kill()
        await asyncio.shield(child.process.wait())


class Child:
    """One process and the socket to it."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(cls) -> Child:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "howdah.work.executors.child",
                str(theirs.fileno()),
                str(os.getpid()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C in the terminal is for the node alone
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(process, reader, writer)

    async def ask(self, handler: Handler, job: Job) -> Answer:
        question = Question(place=place_of(handler.function), kind=handler.kind, job=job)
        try:
            await write_frame(self._writer, msgspec.msgpack.encode(question))
            while (answer := msgspec.msgpack.decode(await read_frame(self._reader), type=Answer)).said:
                speak(answer.said)
            return answer
        except (EOFError, OSError):
            raise ProcessDied(await self._epitaph()) from None

    async def _epitaph(self) -> str:
        code = await self.process.wait()
        if code >= 0:
            return f"the process running the handler exited with code {code}"
        name = signal.Signals(-code).name
        hint = ", maybe out of memory" if -code == signal.SIGKILL else ""
        return f"the process running the handler was killed by {name}{hint}"

    def kill(self) -> None:
        """End it now."""
        if self.process.returncode is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._writer.close()
