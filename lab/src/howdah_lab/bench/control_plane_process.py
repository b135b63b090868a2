"""Control plane under measurement: a real `howdah serve` in a process of its own."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from howdah.child_process import PARENT
from howdah.control_plane.tokens import Tokens
from howdah.errors import HowdahError
from howdah.postgres.database import Database, Session

SERVE = ("-c", "from howdah.cli import main; main()", "serve", "--port", "0", "--rate", "1000000")
"""The rate limit is per token, and here all workers share one token."""
LOOK_EVERY = 0.05
PATIENCE = 60.0
RESIDENT = re.compile(r"VmRSS:\s*([0-9]+) kB")
LISTENS = re.compile(rb"listens on http://127\.0\.0\.1:([0-9]+)")


class ControlPlane:
    """One control plane, from the start of the block to its end."""

    def __init__(self, database: Database, *, app: str | None = None, scopes: Sequence[str] = ("work",)) -> None:
        """``app``: the application to serve; ``scopes``: those of the token."""
        self._database = database
        self._app = app
        self._scopes = list(scopes)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of the block
        self._process: Process | None = None
        self.port = 0
        self.token = ""

    async def __aenter__(self) -> Self:
        session = Session(self._database, "bench token")
        self.token, _ = await Tokens(self._database, session).create("bench", self._scopes)
        await session.close()
        others = {name: value for name, value in os.environ.items() if not name.startswith("HOWDAH_")}
        ours = {
            "HOWDAH_DSN": self._database.dsn,
            "HOWDAH_SCHEMA": self._database.schema,
            PARENT: str(os.getpid()),
        }
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *SERVE,
            *(["-a", self._app] if self._app else []),
            stdin=DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=others | ours,
            cwd="/",  # a folder without configuration, so that no howdah.toml of the current project is read
            start_new_session=True,
        )
        try:
            await self._listens()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), 10)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        self._log.close()

    @property
    def cpu(self) -> float:
        """Seconds of CPU it has used, where the system tells."""
        return sum(int(text.split()[0]) for text in self._of("task/*/schedstat")) / 1e9

    @property
    def memory(self) -> float:
        """Megabytes it has in memory now, where the system tells."""
        return sum(int(size) for text in self._of("status") for size in RESIDENT.findall(text)) / 1024

    def _of(self, files: str) -> list[str]:
        assert self._process is not None
        return [file.read_text() for file in Path(f"/proc/{self._process.pid}").glob(files)]

    async def _listens(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + PATIENCE
        while not (found := LISTENS.search(self._said())):
            if self._process.returncode is not None or time.monotonic() > deadline:
                raise HowdahError(f"the control plane did not start; it said:\n{self._said().decode(errors='replace')}")
            await asyncio.sleep(LOOK_EVERY)
        self.port = int(found[1])

    def _said(self) -> bytes:
        return os.pread(self._log.fileno(), 100_000, 0)
