"""Driver: a process of a rival, told one line at a time; and what that process costs, seen from outside."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from howdah.errors import HowdahError
from howdah_lab.bench.system import KIT, SYSTEMS

PATIENCE = 180.0
LONGEST_LINE = 2**24
DIE_WITH_PARENT = 1
PEAK = re.compile(r"^VmHWM:\s*(\d+)", re.MULTILINE)


class DriverFailed(HowdahError):
    """A rival did not do what it was told; says what it answered."""


class Driver:
    """One process, from the start of the block to its end."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self._command = command
        others = {name: value for name, value in os.environ.items() if not name.startswith(("HOWDAH_", "PG"))}
        self._environment = others | environment | {"PYTHONPATH": str(SYSTEMS / KIT), "NODE_ENV": "production"}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of the block
        self._process: Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=self._log,
            env=self._environment,
            cwd="/",
            limit=LONGEST_LINE,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        # its database is dropped next, so there is nothing to leave in order
        process = self._running
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        self._log.close()

    @property
    def _running(self) -> Process:
        assert self._process is not None
        return self._process

    async def ask(self, *words: object, patience: float = PATIENCE) -> dict[str, Any]:
        """Tell it one thing and wait for the answer."""
        process, line = self._running, " ".join(map(str, words))
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line.encode() + b"\n")
            said = await asyncio.wait_for(process.stdout.readline(), patience)
        except TimeoutError:
            raise DriverFailed(f"no answer to `{line}` in {patience:g} s{self._said()}") from None
        except ConnectionError:
            said = b""
        if not said:
            raise DriverFailed(f"it ended at `{line}`{self._said()}")
        answer: dict[str, Any] = msgspec.json.decode(said)
        if error := answer.get("error"):
            raise DriverFailed(f"`{line}`: {error}{self._said()}")
        return answer

    def freeze(self) -> None:
        """Stop the whole process where it stands."""
        self._running.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._running.send_signal(signal.SIGCONT)

    @property
    def cpu(self) -> float:
        """Seconds of CPU it has used."""
        return cpu_of(self._running.pid)

    @property
    def peak_memory(self) -> float:
        """Most megabytes it had in memory at once."""
        text = Path(f"/proc/{self._running.pid}/status").read_text()
        return sum(int(size) for size in PEAK.findall(text)) / 1024

    def _said(self) -> str:
        self._log.seek(0)
        said = self._log.read()[-1500:].decode(errors="replace").strip()
        return f"; it said:\n{said}" if said else ""


def cpu_of(pid: int) -> float:
    """Seconds of CPU of a process with all its threads, also those that have ended; 0 when it is gone."""
    # the number of a process's CPU clock, as clock_getcpuclockid makes it: finer than the ticks in /proc
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def die_with_parent() -> None:
    """Run in a child before its program: it ends with us, however we end. A frozen one would not see its stdin end."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
