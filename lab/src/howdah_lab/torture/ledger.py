"""Ledger: requested and executed work, recorded in files outside of the database under test.

Every process writes a file of its own, a line of JSON at a time, unbuffered: a process that is killed loses no line.
Moments are those of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

FOLDER = "HOWDAH_TORTURE_LEDGER"
"""The environment variable with the folder of the ledger."""

What = Literal["intend", "acked", "refused", "unknown", "start", "end", "record", "lost", "beat", "heard", "kept"]
"""Of clients: ``intend``, then what they were told: ``acked``, ``refused`` (it surely did not happen) or ``unknown``.
Of handlers: ``start``, and ``end`` right before they return. Of workers: ``record``, outcomes were accepted; ``lost``,
jobs were theirs no longer; ``beat``, the heart beats; ``heard``, wake-ups arrive after all. Of a fault: ``kept``, the
marks of all that a standby had when it was promoted."""


class LedgerEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line."""

    at: float
    what: What
    front: str = ""
    """Jobs, tables, events or fleet."""
    marks: list[int] = []
    """Marks: numbers that identify the requested work in ledger and tables."""
    pid: int = 0
    attempt: int = 0
    token: int = 0
    kind: str = ""
    """Of ``lost``: why. Of ``intend``: the state in which the job is to end; empty: as its front says."""


class LedgerWriter:
    """Writes entries; one for every process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: int | None = None
        self._pid = 0

    def write(self, what: What, front: str = "", *marks: int, attempt: int = 0, token: int = 0, kind: str = "") -> None:
        """Write one line, now."""
        if self._pid != os.getpid():  # also after a fork
            self._pid = os.getpid()
            path = self._folder / f"{self._pid}.{time.monotonic_ns()}.jsonl"
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        entry = LedgerEntry(time.monotonic(), what, front, list(marks), self._pid, attempt, token, kind)
        assert self._file is not None
        os.write(self._file, msgspec.json.encode(entry) + b"\n")


def read(folder: Path) -> list[LedgerEntry]:
    """Return the entries of all processes, oldest first."""
    return sorted(_entries(folder), key=lambda entry: entry.at)


def _entries(folder: Path) -> Iterator[LedgerEntry]:
    decoder = msgspec.json.Decoder(LedgerEntry)
    for path in folder.glob("*.jsonl"):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):  # a process killed while it wrote leaves half a line
                yield decoder.decode(line)
