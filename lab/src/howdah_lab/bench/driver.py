"""Driver of a system: a process that executes one command per line, and its CPU time and memory from outside."""

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
from howdah_lab.bench.howdah_process import tail
from howdah_lab.bench.system import KIT, SYSTEMS

ANSWER_TIMEOUT = 180.0
"""Seconds."""
LONGEST_LINE = 2**24
DIE_WITH_PARENT = 1
PEAK = re.compile(r"^VmHWM:\s*(\d+)", re.MULTILINE)


class DriverFailed(HowdahError):
    """A driver failed; the message has its answer and its output."""


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
        # its database is dropped next, so it need not clean up
        process = self._running
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        self._log.close()

    @property
    def _running(self) -> Process:
        assert self._process is not None
        return self._process

    async def ask(self, *words: object, timeout: float = ANSWER_TIMEOUT) -> dict[str, Any]:
        """Send one command and return the answer."""
        process, line = self._running, " ".join(map(str, words))
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line.encode() + b"\n")
            reply = await asyncio.wait_for(process.stdout.readline(), timeout)
        except TimeoutError:
            raise DriverFailed(f"no answer to `{line}` in {timeout:g} s{tail(self._log)}") from None
        except ConnectionError:
            reply = b""
        if not reply:
            raise DriverFailed(f"it exited at `{line}`{tail(self._log)}")
        answer: dict[str, Any] = msgspec.json.decode(reply)
        if error := answer.get("error"):
            raise DriverFailed(f"`{line}`: {error}{tail(self._log)}")
        return answer

    def freeze(self) -> None:
        """Stop the whole process (SIGSTOP)."""
        self._running.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the process (SIGCONT)."""
        self._running.send_signal(signal.SIGCONT)

    @property
    def cpu(self) -> float:
        """Seconds of CPU used so far."""
        return cpu_of(self._running.pid)

    @property
    def peak_memory(self) -> float:
        """Peak of its resident memory in megabytes."""
        text = Path(f"/proc/{self._running.pid}/status").read_text()
        return sum(int(size) for size in PEAK.findall(text)) / 1024


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU of a process with all its threads, also of ended ones; 0 if it is gone."""
    # the number of a process's CPU clock, as clock_getcpuclockid makes it: finer than the ticks in /proc
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def die_with_parent() -> None:
    """Let a child be killed with this process. A frozen child would not see the end of its stdin."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
