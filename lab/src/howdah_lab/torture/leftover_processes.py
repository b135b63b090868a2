"""Processes that handlers started and that outlived all nodes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from howdah_lab.torture.checker import Violation, finding
from howdah_lab.torture.context import CheckInput
from howdah_lab.torture.ledger import FOLDER

EXIT_TIMEOUT = 10.0
"""Seconds in which everything that a node left behind has to be gone."""


async def leftover_processes(results: CheckInput) -> list[Violation]:
    """Find processes of this run that still live, and end them. Only Linux tells the environment of a process."""
    mark = f"{FOLDER}={results.context.processes.ledger}".encode()
    until = time.monotonic() + EXIT_TIMEOUT
    while (left := list(_with(mark))) and time.monotonic() < until:
        await asyncio.sleep(0.1)
    found = finding("I16", "processes that outlived their node", (f"{pid}: {line}" for pid, line in left))
    for pid, _ in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [found] if found else []


def _with(mark: bytes) -> Iterator[tuple[int, str]]:
    """The processes, with their command lines, that were started with this in their environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                yield int(folder.name), words.strip()
