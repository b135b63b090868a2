"""A real `howdah` command in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Self

from howdah.child_process import PARENT
from howdah.postgres.database import Database

HOWDAH = ("-c", "from howdah.cli import main; main()")
STOP_TIMEOUT = 10.0
"""Seconds from SIGTERM to SIGKILL."""


class HowdahProcess:
    """The process, running inside the block; its environment names the database, and no settings file is read."""

    stdin: int | None = asyncio.subprocess.DEVNULL
    stdout: int | None = None
    """``None``: into the log."""

    def __init__(self, database: Database, words: Sequence[str]) -> None:
        self._database = database
        self._words = words
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of the block
        self._process: Process | None = None

    async def __aenter__(self) -> Self:
        others = {name: value for name, value in os.environ.items() if not name.startswith("HOWDAH_")}
        ours = {
            "HOWDAH_DSN": self._database.dsn,
            "HOWDAH_SCHEMA": self._database.schema,
            PARENT: str(os.getpid()),  # it exits when this process does, even by a kill
        }
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *HOWDAH,
            *self._words,
            stdin=self.stdin,
            stdout=self._log if self.stdout is None else self.stdout,
            stderr=self._log,
            env=others | ours,
            cwd="/",  # a folder without configuration, so that no howdah.toml of the current project is read
            start_new_session=True,
        )
        try:
            await self.wait_until_ready()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        process = self.process
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_TIMEOUT)
        except TimeoutError:
            process.kill()
            await process.wait()
        self._log.close()

    async def wait_until_ready(self) -> None:
        """Return when the process can be measured."""
        raise NotImplementedError

    @property
    def process(self) -> Process:
        """The process."""
        assert self._process is not None
        return self._process

    @property
    def output(self) -> bytes:
        """Begin of the log."""
        return os.pread(self._log.fileno(), 100_000, 0)

    @property
    def output_tail(self) -> str:
        """End of the log, for error messages."""
        return tail(self._log)


def tail(log: IO[bytes], size: int = 2000) -> str:
    """Return the end of a process's log, for error messages."""
    end = os.fstat(log.fileno()).st_size
    text = os.pread(log.fileno(), size, max(0, end - size)).decode(errors="replace").strip()
    return f"; its output:\n{text}" if text else ""
