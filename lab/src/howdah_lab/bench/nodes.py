"""Nodes under measurement: real `howdah worker` processes, and the readings of their meters."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import Self

import msgspec

from howdah.child_process import PARENT
from howdah.errors import HowdahError
from howdah.postgres.database import Database
from howdah_lab.bench.meter import READ, RESET, MeterReading

WORKER = ("-c", "from howdah.cli import main; main()", "worker", "-a")
METRICS = ("--metrics", "127.0.0.1:0")
LOOK_EVERY = 0.05
PATIENCE = 60.0
"""Seconds for a node to start, and to make progress."""


class Nodes:
    """Nodes, each a process of its own, running inside the block."""

    def __init__(self, database: Database, count: int, app: str = "howdah_lab.bench.node:app") -> None:
        self._database = database
        self._app = app
        self._count = count
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of the block
        self._processes: list[Process] = []

    async def __aenter__(self) -> Self:
        try:
            for _ in range(self._count):
                self._processes.append(await self._start())
            await self._started()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.terminate()
        for process in self._processes:
            try:
                await asyncio.wait_for(process.wait(), 10)
            except TimeoutError:
                process.kill()
                await process.wait()
        self._log.close()

    async def reset(self) -> None:
        """Every meter starts over."""
        await asyncio.gather(*(self._ask(process, RESET) for process in self._processes))

    async def read(self) -> list[MeterReading]:
        """Return the reading of every node."""
        return list(await asyncio.gather(*(self._ask(process, READ) for process in self._processes)))

    async def finish(self, jobs: int) -> list[MeterReading]:
        """Wait until so many outcomes are committed since the reset; returns the readings."""
        before, deadline = 0, time.monotonic() + PATIENCE
        while True:
            readings = await self.read()
            ended = sum(reading.done + reading.other for reading in readings)
            if ended >= jobs:
                return readings
            if ended > before:
                before, deadline = ended, time.monotonic() + PATIENCE
            elif time.monotonic() > deadline:
                raise HowdahError(f"only {ended:,} of {jobs:,} ended, and none in {PATIENCE:g} s{self._said()}")
            await asyncio.sleep(LOOK_EVERY)

    async def _start(self) -> Process:
        others = {name: value for name, value in os.environ.items() if not name.startswith("HOWDAH_")}
        ours = {
            "HOWDAH_DSN": self._database.dsn,
            "HOWDAH_SCHEMA": self._database.schema,
            PARENT: str(os.getpid()),  # it exits when this process does, even by a kill
        }
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *WORKER,
            self._app,
            *METRICS,
            stdin=PIPE,
            stdout=PIPE,
            stderr=self._log,
            env=others | ours,
            cwd="/",  # a folder without configuration, so that no howdah.toml of the current project is read
            start_new_session=True,
        )

    async def _started(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not all(reading.started for reading in await self.read()):
            if time.monotonic() > deadline:
                raise HowdahError(f"a node did not start in {PATIENCE:g} s{self._said()}")
            await asyncio.sleep(LOOK_EVERY)

    async def _ask(self, process: Process, told: bytes) -> MeterReading:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(told)
            await process.stdin.drain()
        line = await process.stdout.readline()
        if not line:
            raise HowdahError(f"a node ended with code {await process.wait()}{self._said()}")
        return msgspec.json.decode(line, type=MeterReading)

    def _said(self) -> str:
        self._log.seek(0)
        said = self._log.read()[-2000:].decode(errors="replace").strip()
        return f"; it said:\n{said}" if said else ""
