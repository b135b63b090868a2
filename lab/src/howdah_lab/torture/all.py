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
from howdah_lab.torture.places import PLACES
from howdah_lab.torture.report import RunReport
from howdah_lab.torture.run import SETTLE, Run
from howdah_lab.torture.servers.given import GivenServer

SHORTER = 0.5
"""Share of the time a control gets: it has to break only once."""


def missing(fault: Fault) -> str | None:
    """Return what this machine lacks for a fault, in words."""
    look = getattr(PLACES[fault.place], "missing", None)
    return look() if look is not None else None


async def torture(
    faults: Sequence[Fault],
    *,
    seconds: float,
    seed: int,
    dsn: str | None = None,
    folder: Path | None = None,
    without: str | None = None,
    workers: int = 3,
    say: Callable[[str], None] = lambda _: None,
) -> RunReport:
    """One run of these faults, on a server of its own or on the one given."""
    place = _place(faults, dsn)
    folder = folder or Path(tempfile.mkdtemp(prefix="howdah-torture-"))
    names = "-".join(fault.name for fault in faults)[:60]
    folder = folder / f"{time.strftime('%Y%m%dT%H%M%S')}-{names}{f'-without-{without}' if without else ''}"
    folder.mkdir(parents=True)
    async with place:
        run = Run(
            place,
            faults,
            folder=folder,
            seconds=seconds,
            seed=seed,
            workers=workers,
            without=without,
            settle=SETTLE if without is None else SETTLE / 2,
            say=say,
        )
        try:
            with guards.asynchronous_commits(without):
                report = await run.run()
        except asyncio.CancelledError:
            if dsn is not None and run.laid_out:
                await run.clear()
            raise
        if dsn is not None:
            await run.clear()
        return report


def _place(faults: Sequence[Fault], dsn: str | None) -> Any:
    if dsn is not None:
        if needy := [fault.name for fault in faults if fault.hurts_server]:
            raise ConfigError(f"{', '.join(needy)} would hurt a server that is not ours; leave --dsn out")
        return GivenServer(dsn)
    names = {fault.place for fault in faults}
    if len(names) > 1:
        raise ConfigError(f"these faults need different servers ({', '.join(sorted(names))}); run them one by one")
    name = names.pop()
    if (lacking := missing(faults[0])) is not None:
        raise ConfigError(lacking)
    return PLACES[name]()
