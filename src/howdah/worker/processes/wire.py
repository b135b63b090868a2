"""Messages between a node and the processes that run its handlers: names and JSON, never code."""

from __future__ import annotations

import asyncio
import importlib
import runpy
import struct
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from howdah.child_process import loading_script
from howdah.errors import ConfigError
from howdah.job import Job
from howdah.outcome import FailureReport
from howdah.store import JobLogEntry

_LENGTH = struct.Struct("!I")


class ProcessRequest(msgspec.Struct):
    """The request to run a job with the handler found at ``place``."""

    number: int
    """Number of this request; all replies to it carry the same number."""
    place: tuple[str, str, str]
    kind: str
    job: Job
    largest_result: int
    """Bytes of JSON."""


class ProcessReply(msgspec.Struct):
    """A reply: the job has started, or a log entry of its handler, or its outcome."""

    number: int = 0
    started: int = 0
    """The id of the process in which the job has started; it leads its process group."""
    log_entry: JobLogEntry | None = None
    result: bytes | None = None
    """JSON."""
    not_stored: str | None = None
    """The reason why the result of a finished job cannot be stored."""
    snooze: float | None = None
    cancel: str | None = None
    report: FailureReport | None = None


def place_of(function: Callable[..., Any]) -> tuple[str, str, str]:
    """Return where another process finds this function: module, name, and the file if the module is a script."""
    module, name = function.__module__, function.__qualname__
    if "<locals>" in name:
        raise ConfigError(
            f"{name} is defined inside a function, so another process cannot find it; move it to a module"
        )
    if module != "__main__":
        return module, name, ""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return spec.name, name, ""
    return "__main__", name, str(getattr(main, "__file__", ""))


@cache
def _script(path: str) -> dict[str, Any]:
    with loading_script(path):
        return runpy.run_path(path, run_name="__howdah_child__")


def find(place: tuple[str, str, str]) -> Any:
    """Return the object at this place."""
    module, name, path = place
    first, *rest = name.split(".")
    found = _script(path)[first] if module == "__main__" else getattr(importlib.import_module(module), first)
    for part in rest:
        found = getattr(found, part)
    return found


async def write_frame(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send one message."""
    writer.write(_LENGTH.pack(len(data)) + data)
    await writer.drain()


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Receive one message; raises :class:`EOFError` when the connection is closed."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(length)
