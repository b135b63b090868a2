"""Execution logs of running attempts, buffered in memory and written at most once a second."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol

import msgspec

from howdah.job import Job
from howdah.loops import Outage, wait
from howdah.redact import keep, message_of, scrub
from howdah.table.budget import Key

log = logging.getLogger("howdah")

EVERY = 1.0
LARGEST_ENTRY = 64 * 1024
LARGEST_ROW = 1024 * 1024
MOST_ENTRIES = 200
LONGEST_WORD, MOST_WORDS, LARGEST_COMMAND = 4_000, 1_000, 32 * 1024
"""Characters kept of a word of a command, words of a command, and characters of all of them."""
CUT = "\n… the rest is cut …"


class ExecutionLogEntry:
    """One step of an attempt: ``async with uploads.log("clone", command=[…]) as entry: entry.write(…)``."""

    def __init__(self, page: AttemptLog | None, key: str, command: Sequence[object]) -> None:
        self._page = page
        self.key = key
        self.command = [command] if isinstance(command, str) else list(command)
        self.exit_code: int | None = None
        """Set by the handler, else 0 at the end and 1 after an exception."""
        self._start = datetime.now(UTC)
        self._began = time.monotonic()
        self._took: float | None = None
        self._out: list[str] = []
        self._size = 0

    def write(self, text: str | bytes) -> None:
        """Add output; beyond 64 KiB it is cut."""
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        room = LARGEST_ENTRY - self._size
        if self._page:
            room = min(room, self._page.room)
        if room <= 0 or not text:
            return
        kept = text if len(text) <= room else text[:room] + CUT
        self._size = LARGEST_ENTRY if len(text) > room else self._size + len(text)
        self._out.append(scrub(kept))
        if self._page:
            self._page.room -= len(kept)
            self._page.dirty = True

    def plain(self) -> dict[str, Any]:
        """Return the entry as it is stored."""
        return {
            "key": _clean(self.key, LONGEST_WORD),
            "command": _words(self.command),
            "startTime": self._start.isoformat(),
            "exitCode": _code(self.exit_code),
            "out": "".join(self._out),
            "durationMs": None if self._took is None else round(self._took * 1000),
        }

    def __enter__(self) -> ExecutionLogEntry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._took = time.monotonic() - self._began
        if self.exit_code is None:
            self.exit_code = 0 if error is None else 1
        if self._page:
            self._page.dirty = True

    async def __aenter__(self) -> ExecutionLogEntry:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def _clean(value: object, longest: int) -> str:
    """Turn any value into text that JSON and PostgreSQL can store: a word of a command may be a path or a number.

    Never raises: a log entry must not fail the handler's row.
    """
    return keep(value.decode("utf-8", "replace") if type(value) is bytes else message_of(value), longest)


def _words(command: Sequence[object]) -> list[str]:
    """Return a command as it can be stored, truncated if it is long.

    >>> _words(["wc", 7, *["x"] * 10_000])[-1]
    '… 9002 words cut …'
    """
    words: list[str] = []
    size = 0
    for place, word in enumerate(command):
        words.append(_clean(word, LONGEST_WORD))
        size += len(words[-1])
        if (size >= LARGEST_COMMAND or len(words) >= MOST_WORDS) and place + 1 < len(command):
            return [*words, f"… {len(command) - place - 1} words cut …"]
    return words


def _code(value: object) -> int | str | None:
    """Return an exit code as it can be stored: as a number if possible."""
    if value is None:
        return None
    if issubclass(type(value), int):
        number = int.__index__(value)  # type: ignore[arg-type]  # a subclass may have code of its own
        if -(2**63) <= number < 2**63:
            return number
        return "(its number is too large)"
    return _clean(value, LONGEST_WORD)


class AttemptLog:
    """The log of one attempt."""

    def __init__(self) -> None:
        self.entries: list[ExecutionLogEntry] = []
        self.room = LARGEST_ROW
        self.dirty = False

    def take(self) -> str:
        """Return all entries as JSON, and mark the log as written until an entry is added."""
        self.dirty = False
        return msgspec.json.encode([entry.plain() for entry in self.entries]).decode()


class LogStore(Protocol):
    """Persistent store of execution logs."""

    async def log(self, rows: Sequence[tuple[Key, str]]) -> set[Key]:
        """Write logs; return those whose rows are locked now."""
        ...


class ExecutionLogs:
    """The logs of all attempts of one table on one node."""

    def __init__(self, shelf: LogStore) -> None:
        self._shelf = shelf
        self._pages: dict[Key, AttemptLog] = {}

    def open(self, job: Job, key: str, command: Sequence[object]) -> ExecutionLogEntry:
        """Begin an entry; entries above the limit are not kept."""
        page = self._pages.setdefault((job.token, job.id), AttemptLog())
        entry = ExecutionLogEntry(page, key, command)
        if len(page.entries) < MOST_ENTRIES:
            page.entries.append(entry)
            page.dirty = True
        return entry

    def pending(self, keys: Sequence[Key]) -> list[tuple[Key, str]]:
        """Remove these finished attempts and return their unwritten logs."""
        pages = [(key, self._pages.pop(key)) for key in keys if key in self._pages]
        return [(key, page.take()) for key, page in pages if page.dirty]

    async def finish(self, keys: Sequence[Key], table: str) -> set[Key]:
        """Write the last entries of these attempts, before the outcome: after it this node no longer holds the rows.

        Returns those whose rows are locked; their logs are kept, and their outcomes have to wait.
        """
        pages = {key: self._pages.pop(key) for key in keys if key in self._pages}
        last = [(key, page.take()) for key, page in pages.items() if page.dirty]
        try:
            locked = await self._shelf.log(last) if last else set()
        except Exception as error:
            log.warning("lost the last entries of %d execution logs of table %s: %s", len(last), table, error)
            return set()
        for key in locked:
            self._pages[key] = pages[key]
            pages[key].dirty = True
        return locked

    def keep(self, wanted: Callable[[Key], bool]) -> None:
        """Drop the logs of all other attempts: their leases are lost."""
        for key in [key for key in self._pages if not wanted(key)]:
            del self._pages[key]

    async def run(self, stop: asyncio.Event) -> None:
        """Write new entries every second."""
        outage = Outage("execution logs")
        while not stop.is_set():
            dirty = [(key, page) for key, page in list(self._pages.items()) if page.dirty]
            pause = EVERY
            if dirty:
                try:
                    locked = await self._shelf.log([(key, page.take()) for key, page in dirty])
                    outage.heal()
                    for key, page in dirty:
                        page.dirty = page.dirty or key in locked
                except Exception as error:
                    for _, page in dirty:
                        page.dirty = True
                    pause = max(EVERY, outage.fail(error))
            await wait(stop, pause)
