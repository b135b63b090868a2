"""Runs of every fault: each alone, then with each guard switched off whose absence must be noticed."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from howdah.errors import ConfigError
from howdah_lab.torture import guards
from howdah_lab.torture.faults import Fault
from howdah_lab.torture.report import RunReport
from howdah_lab.torture.run import SETTLE, Run
from howdah_lab.torture.servers.external import GivenServer
from howdah_lab.torture.servers.kinds import SERVERS

SHORTER = 0.5
"""Share of the time a control gets: it has to break only once."""


def missing(fault: Fault) -> str | None:
    """Return what this machine lacks for a fault, in words."""
    find_missing = getattr(SERVERS[fault.server], "missing", None)
    return find_missing() if find_missing is not None else None


async def torture(
    faults: Sequence[Fault],
    *,
    seconds: float,
    seed: int,
    dsn: str | None = None,
    folder: Path | None = None,
    without: str | None = None,
    workers: int = 3,
    print_line: Callable[[str], None] = lambda _: None,
) -> RunReport:
    """One run of these faults, on a server of its own or on the one given."""
    server = _server(faults, dsn)
    folder = folder or Path(tempfile.mkdtemp(prefix="howdah-torture-"))
    names = "-".join(fault.name for fault in faults)[:60]
    folder = folder / f"{time.strftime('%Y%m%dT%H%M%S')}-{names}{f'-without-{without}' if without else ''}"
    folder.mkdir(parents=True)
    async with server:
        run = Run(
            server,
            faults,
            folder=folder,
            seconds=seconds,
            seed=seed,
            workers=workers,
            without=without,
            settle=SETTLE if without is None else SETTLE / 2,
            print_line=print_line,
        )
        try:
            with guards.asynchronous_commits(without):
                report = await run.run()
        except asyncio.CancelledError:
            if dsn is not None and run.schemas_created:
                await run.clear()
            raise
        if dsn is not None:
            await run.clear()
        return report


def _server(faults: Sequence[Fault], dsn: str | None) -> Any:
    if dsn is not None:
        if needy := [fault.name for fault in faults if fault.harms_server]:
            raise ConfigError(f"{', '.join(needy)} would harm a server that is not ours; leave --dsn out")
        return GivenServer(dsn)
    names = {fault.server for fault in faults}
    if len(names) > 1:
        raise ConfigError(f"these faults need different servers ({', '.join(sorted(names))}); run them one by one")
    name = names.pop()
    if (lacking := missing(faults[0])) is not None:
        raise ConfigError(lacking)
    return SERVERS[name]()
