"""Processes under test: real workers and a real control plane, to be killed, frozen, stopped and replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

import msgspec

from howdah_lab.torture.app import SCHEMA_VARIABLE
from howdah_lab.torture.guards import WITHOUT
from howdah_lab.torture.ledger import FOLDER
from howdah_lab.torture.release import RELEASE

Role = Literal["worker", "plane", "agent"]
APP = "howdah_lab.torture.node:app"
STARTED_BY = "HOWDAH_TORTURE_STARTED_BY"
"""The process id of the run, with which its processes end."""


class NodeIntervals(msgspec.Struct, frozen=True):
    """The times of nodes, in seconds."""

    lease: float = 4.0
    heartbeat: float = 1.0
    poll: float = 1.0
    grace: float = 2.0


@dataclass(eq=False, slots=True)
class RunProcess:
    """One process of a run."""

    role: Role
    popen: subprocess.Popen[bytes]
    output: Path
    file: IO[bytes]
    began: float = field(default_factory=time.monotonic)
    release: str = ""
    """Release whose declarations it has; see ``release``."""
    frozen: bool = False
    ended: float | None = None
    """When it was seen to be gone."""
    wanted: bool = False
    """True if we ended it."""
    stopped: bool = False
    """True if it was stopped by SIGTERM; it must then exit without an error."""
    peak: int = 0
    """Largest memory it was seen with, in bytes."""

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def measure_memory(self) -> None:
        """Note its memory."""
        with suppress(OSError, ValueError, IndexError):
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
            self.peak = max(self.peak, pages * os.sysconf("SC_PAGE_SIZE"))


class RunProcesses:
    """All processes of a run; when the block ends none of them is left."""

    def __init__(self, folder: Path, environment: Mapping[str, str], intervals: NodeIntervals) -> None:
        self._folder = folder
        self._environment = environment
        self._intervals = intervals
        self.ledger = environment[FOLDER]
        self._sleepy = environment.get(WITHOUT) == "poll"
        self.running: list[RunProcess] = []
        self.past: list[RunProcess] = []
        """Processes that have exited."""

    def of(self, *roles: Role) -> list[RunProcess]:
        """Return the running processes in these roles, without frozen ones."""
        return [process for process in self.running if process.role in roles and process.alive and not process.frozen]

    def worker(self, dsn: str, *more: str, **environment: str) -> RunProcess:
        """Start a node with a database."""
        words = ["worker", "-a", APP, "-q", "jobs", "-c", "16", "--rebalance", "1s", *self._times(), *more]
        return self._start("worker", words, HOWDAH_DSN=dsn, **environment)

    def plane(self, dsn: str, port: int) -> RunProcess:
        """Start a control plane."""
        intervals = self._intervals
        words = ["serve", "-a", APP, "--port", str(port), "--auth", "none", "--no-dashboard", "--rate", "10000"]
        words += ["--heartbeat", f"{intervals.heartbeat:g}s", "--offline-after", f"{intervals.lease:g}s"]
        return self._start("plane", words, HOWDAH_DSN=dsn)

    def agent(self, url: str, **environment: str) -> RunProcess:
        """Start a worker without a database."""
        words = ["worker", "-a", APP, "-q", "fleet", "-c", "20", "--server", url, *self._times()]
        return self._start("agent", words, **environment)

    def has_started(self, process: RunProcess) -> bool:
        """Return whether it has written anything into the ledger yet; a control plane never does."""
        return process.role == "plane" or any(Path(self.ledger).glob(f"{process.pid}.*"))

    def signal(self, process: RunProcess, number: signal.Signals) -> None:
        """Send one a signal."""
        with suppress(ProcessLookupError):
            process.popen.send_signal(number)
        if number in (signal.SIGSTOP, signal.SIGCONT):
            process.frozen = number == signal.SIGSTOP

    def stop(self, process: RunProcess) -> None:
        """Stop one with SIGTERM, as a deploy does."""
        process.wanted = process.stopped = True
        self.signal(process, signal.SIGTERM)

    def kill(self, process: RunProcess) -> None:
        """End one at once, frozen or not."""
        process.wanted = True
        with suppress(ProcessLookupError):
            process.popen.kill()
        process.popen.wait()
        self._forget(process)

    def poll(self) -> list[RunProcess]:
        """Record the state of every process; returns those that exited by themselves."""
        exited = []
        for process in list(self.running):
            if process.alive:
                process.measure_memory()
                continue
            self._forget(process)
            if not process.wanted or (process.stopped and process.popen.returncode):
                exited.append(process)
        return exited

    def __enter__(self) -> RunProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        for process in list(self.running):
            self.kill(process)

    def _times(self) -> list[str]:
        intervals = self._intervals
        return [
            *("--lease", f"{intervals.lease:g}s", "--heartbeat", f"{intervals.heartbeat:g}s"),
            *("--poll", "1000s" if self._sleepy else f"{intervals.poll:g}s", "--grace", f"{intervals.grace:g}s"),
        ]

    def _start(self, role: Role, words: list[str], **environment: str) -> RunProcess:
        others = {name: value for name, value in os.environ.items() if not name.startswith(("HOWDAH_", "PG"))}
        output = self._folder / f"{role}-{len(self.running) + len(self.past)}.log"
        file = output.open("wb")
        variables = {**others, **self._environment, **environment, STARTED_BY: str(os.getpid())}
        popen = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "howdah", *words],
            env=variables,
            cwd="/",  # a folder without configuration, so that no howdah.toml of the current project is read
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
        process = RunProcess(role, popen, output, file, release=variables.get(RELEASE, ""))
        self.running.append(process)
        return process

    def _forget(self, process: RunProcess) -> None:
        process.ended = time.monotonic()
        process.file.close()
        self.running.remove(process)
        self.past.append(process)


def environment(
    run_schema: str, schema: str, ledger: Path, without: str | None, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment of all processes."""
    variables = {SCHEMA_VARIABLE: run_schema, "HOWDAH_SCHEMA": schema, FOLDER: str(ledger), **(more or {})}
    return variables | ({WITHOUT: without} if without else {})
