"""Figures of the benchmark, and the machine they were measured on."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from statistics import median, quantiles

import asyncpg

from howdah.version import __version__

SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size")


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity, measured once per round."""

    name: str
    unit: str
    rounds: Sequence[float]
    median: float = field(init=False)
    low: float = field(init=False)
    high: float = field(init=False)

    def __post_init__(self) -> None:
        for name, value in (("median", median(self.rounds)), ("low", min(self.rounds)), ("high", max(self.rounds))):
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The machine and the server of the measurement."""

    howdah: str
    python: str
    uvloop: str | None
    """``None``: the event loop of the standard library."""
    opentelemetry: str | None
    """With it, every handler runs in a span."""
    postgresql: str
    server: str
    """Host of the database; of a PostgreSQL of the benchmark no folder, because results are published."""
    cores: int
    load: float
    """Of the last minute before the start."""
    settings: dict[str, str]

    @property
    def busy(self) -> bool:
        """True if other processes kept a good part of this machine busy."""
        return self.load > self.cores / 4

    @property
    def durable(self) -> bool:
        """True if what is committed survives a power cut."""
        return self.settings["fsync"] == "on" and self.settings["synchronous_commit"] != "off"


def percentile(seconds: Sequence[float], rank: int) -> float:
    """Return a percentile in milliseconds.

    >>> percentile([0.001, 0.002, 0.003], 50)
    2.0
    """
    if len(seconds) == 1:
        return seconds[0] * 1e3
    return quantiles(seconds, n=100, method="inclusive")[rank - 1] * 1e3


async def look_around(conn: asyncpg.Connection, server: str) -> Environment:
    """Return the versions of this machine, Python and server."""
    settings = {name: str(await conn.fetchval("select current_setting($1)", name)) for name in SETTINGS}
    return Environment(
        howdah=__version__,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        uvloop=_version("uvloop"),
        opentelemetry=_version("opentelemetry-api") if _imports("opentelemetry.trace") else None,
        postgresql=str(await conn.fetchval("select current_setting('server_version')")),
        server=server,
        cores=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1,
        load=os.getloadavg()[0],
        settings=settings,
    )


def _imports(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
