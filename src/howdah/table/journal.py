"""Journal: the execution logs of running attempts, kept in memory and written at most once a second."""

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
from howdah.scrub import scrub
from howdah.service import Outage, wait
from howdah.table.budget import Key

log = logging.getLogger("howdah")

EVERY = 1.0
LARGEST_ENTRY = 64 * 1024
LARGEST_ROW = 1024 * 1024
MOST_ENTRIES = 200
CUT = "\n… the rest is cut …"


class Entry:
    """One step of an attempt: ``async with uploads.log("clone", command=[…]) as entry: entry.write(…)``."""

    def __init__(self, page: Page | None, key: str, command: Sequence[object]) -> None:
        self._page = page
        self.key = key
        self.command = [command] if isinstance(command, str) else list(command)
        self.exit_code: int | None = None
        """Set it yourself, or it is 0 at the end and 1 after an exception."""
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
        self._out.append(_clean(kept))
        if self._page:
            self._page.room -= len(kept)
            self._page.dirty = True

    def plain(self) -> dict[str, Any]:
        """As it is stored."""
        return {
            "key": _clean(self.key),
            "command": [_clean(word) for word in self.command],
            "startTime": self._start.isoformat(),
            "exitCode": self.exit_code if isinstance(self.exit_code, int | None) else _clean(self.exit_code),
            "out": "".join(self._out),
            "durationMs": None if self._took is None else round(self._took * 1000),
        }

    def __enter__(self) -> Entry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._took = time.monotonic() - self._began
        if self.exit_code is None:
            self.exit_code = 0 if error is None else 1
        if self._page:
            self._page.dirty = True

    async def __aenter__(self) -> Entry:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def _clean(value: object) -> str:
    """Any value as text that JSON and PostgreSQL can store: a word of a command may be a path or a number."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return scrub(text.encode("utf-8", "replace").decode())


class Page:
    """What one attempt logged."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.room = LARGEST_ROW
        self.dirty = False

    def take(self) -> str:
        """All of it as JSON; it is clean until something is added."""
        self.dirty = False
        return msgspec.json.encode([entry.plain() for entry in self.entries]).decode()


class Shelf(Protocol):
    """Where pages are kept for good."""

    async def log(self, rows: Sequence[tuple[Key, str]]) -> set[Key]:
        """Write pages; returns those whose rows are locked now."""
        ...


class Journal:
    """The pages of all attempts of one table on one node."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._pages: dict[Key, Page] = {}

    def open(self, job: Job, key: str, command: Sequence[object]) -> Entry:
        """Begin an entry; one too many is not kept."""
        page = self._pages.setdefault((job.token, job.id), Page())
        entry = Entry(page, key, command)
        if len(page.entries) < MOST_ENTRIES:
            page.entries.append(entry)
            page.dirty = True
        return entry

    def pending(self, keys: Sequence[Key]) -> list[tuple[Key, str]]:
        """What these attempts logged and is not written yet; they are over, and forgotten."""
        pages = [(key, self._pages.pop(key)) for key in keys if key in self._pages]
        return [(key, page.take()) for key, page in pages if page.dirty]

    async def finish(self, keys: Sequence[Key], table: str) -> set[Key]:
        """Write what these attempts logged last: behind their outcome the rows are no longer ours.

        Returns those whose rows are locked; their pages are kept, and their outcomes have to wait.
        """
        pages = {key: self._pages.pop(key) for key in keys if key in self._pages}
        last = [(key, page.take()) for key, page in pages.items() if page.dirty]
        try:
            locked = await self._shelf.log(last) if last else set()
        except Exception as error:
            log.warning("the last of %d execution logs of table %s is lost: %s", len(last), table, error)
            return set()
        for key in locked:
            self._pages[key] = pages[key]
            pages[key].dirty = True
        return locked

    def keep(self, wanted: Callable[[Key], bool]) -> None:
        """Forget all others: their leases are lost."""
        for key in [key for key in self._pages if not wanted(key)]:
            del self._pages[key]

    async def run(self, stop: asyncio.Event) -> None:
        """Write what is new, every second."""
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
