"""Commands in processes of their own, and the signals they are sent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from kit.roles import dsn_for

TESTS = Path(__file__).parents[1]
COMMAND_TIMEOUT = 60.0
"""Seconds a test waits for what must come; a process alone may take ten to start when the machine is busy."""


class Command:
    """``howdah …`` as a process; when the block ends nothing of it is left."""

    def __init__(self, *words: str, dsn: str | None = None, folder: Path | None = None, **environment: str) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("HOWDAH_", "PG"))}
        named = {"HOWDAH_DSN": dsn_for(dsn, *words[:1])} if dsn else {}
        # a file, not a pipe: nobody has to read along
        self._output = tempfile.TemporaryFile("a+b")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "howdah", *words],
            env={**own, "PYTHONPATH": str(TESTS), **named, **environment},
            cwd=folder or TESTS,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
        )

    @property
    def output(self) -> str:
        """All it has written so far."""
        return os.pread(self._output.fileno(), 1_000_000, 0).decode()

    @property
    def children(self) -> list[int]:
        """The processes it has started that still run."""
        return children(self.process.pid)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def says(self, text: str, seconds: float = COMMAND_TIMEOUT) -> None:
        """Wait until it has written ``text``."""
        eventually(lambda: text in self.output or self.process.poll() is not None, seconds, lambda: self.output)
        assert text in self.output, self.output

    def begins(self, *kinds: str) -> None:
        """Wait until the handlers of these chores run; that they are claimed is not enough."""
        for kind in set(kinds):
            text, times = f"{kind} begins", kinds.count(kind)
            eventually(lambda text=text, times=times: self.output.count(text) >= times, why=lambda: self.output)

    def ends(self, seconds: float = COMMAND_TIMEOUT) -> int:
        """Wait for its end; returns the exit code."""
        return self.process.wait(seconds)

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        family = [self.process.pid, *self.children]
        family += [grandchild for child in family[1:] for grandchild in children(child)]
        for pid in family:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        eventually(lambda: not any(map(alive, family)))
        self.last_output = self.output
        """All it has ever written."""
        self._output.close()


def children(pid: int) -> list[int]:
    """The children of a process that still run."""
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for child in listed.split() if alive(int(child))]


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be buried does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def eventually(check: Callable[[], Any], seconds: float = COMMAND_TIMEOUT, why: Callable[[], str] = str) -> Any:
    """Wait until ``check`` is true; returns what it said."""
    until = time.monotonic() + seconds
    while not (result := check()):
        assert time.monotonic() < until, f"did not come true within {seconds} s\n{why()}"
        time.sleep(0.02)
    return result


class Jobs:
    """The jobs of one database, for tests that do not wait in a loop."""

    def __init__(self, dsn: str) -> None:
        self._conn = psycopg.connect(dsn, autocommit=True)

    def enqueue(self, kind: str, seconds: float = 0.0) -> int:
        """Enqueue one of the chores."""
        made = self._conn.execute(
            "select id from howdah.enqueue(%s, json_build_object('seconds', %s::float8))", (kind, seconds)
        )
        return int(made.fetchone()[0])  # type: ignore[index]

    def enqueue_number(self, kind: str, n: int, queue: str = "default") -> None:
        """Enqueue a job whose only argument is ``n``."""
        self._conn.execute("select howdah.enqueue(%s, json_build_object('n', %s::int), %s)", (kind, n, queue))

    def all(self, columns: str = "state") -> list[Any]:
        """What is known of every job, by id."""
        rows = self._conn.execute(f"select {columns} from howdah.jobs order by id").fetchall()  # type: ignore[arg-type]
        return [row[0] if len(row) == 1 else row for row in rows]

    def run(self, statement: str) -> None:
        self._conn.execute(statement)  # type: ignore[arg-type]

    def query(self, statement: str) -> list[Any]:
        """The rows of any question."""
        return self._conn.execute(statement).fetchall()  # type: ignore[arg-type]

    def become(self, *states: str, seconds: float = COMMAND_TIMEOUT) -> None:
        """Wait until the jobs are in these states."""
        eventually(lambda: self.all() == list(states), seconds, lambda: str(self.all()))

    def close(self) -> None:
        self._conn.close()
