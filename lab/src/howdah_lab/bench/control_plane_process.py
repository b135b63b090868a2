"""Control plane under measurement: a real `howdah serve` in a process of its own."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from howdah.control_plane.tokens import Tokens
from howdah.errors import HowdahError
from howdah.postgres.database import Database, Session
from howdah_lab.bench.howdah_process import HowdahProcess

SERVE = ("serve", "--port", "0", "--rate", "1000000")
"""The rate limit is per token, and here all workers share one token."""
POLL = 0.05
"""Seconds between two looks at the log while it starts."""
START_TIMEOUT = 60.0
"""Seconds."""
RESIDENT = re.compile(r"VmRSS:\s*([0-9]+) kB")
LISTENS = re.compile(rb"listens on http://127\.0\.0\.1:([0-9]+)")


class ControlPlane(HowdahProcess):
    """One control plane, and a token for it."""

    def __init__(self, database: Database, *, app: str | None = None, scopes: Sequence[str] = ("work",)) -> None:
        """``app``: the application to serve; ``scopes``: those of the token."""
        super().__init__(database, (*SERVE, *(["-a", app] if app else [])))
        self._scopes = list(scopes)
        self.port = 0
        self.token = ""

    async def __aenter__(self) -> Self:
        session = Session(self._database, "bench token")
        self.token, _ = await Tokens(self._database, session).create("bench", self._scopes)
        await session.close()
        return await super().__aenter__()

    @property
    def cpu(self) -> float:
        """Seconds of CPU used so far; 0 on systems without /proc."""
        return sum(int(text.split()[0]) for text in self._read("task/*/schedstat")) / 1e9

    @property
    def memory(self) -> float:
        """Resident megabytes; 0 on systems without /proc."""
        return sum(int(size) for text in self._read("status") for size in RESIDENT.findall(text)) / 1024

    def _read(self, files: str) -> list[str]:
        return [file.read_text() for file in Path(f"/proc/{self.process.pid}").glob(files)]

    async def wait_until_ready(self) -> None:
        """Return when it listens."""
        deadline = time.monotonic() + START_TIMEOUT
        while not (found := LISTENS.search(self.output)):
            if self.process.returncode is not None or time.monotonic() > deadline:
                raise HowdahError(f"the control plane did not start{self.output_tail}")
            await asyncio.sleep(POLL)
        self.port = int(found[1])
