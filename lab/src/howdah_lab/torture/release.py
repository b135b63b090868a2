"""Release: declares what differs between an old and a new release of the tortured application."""

from __future__ import annotations

import os
from typing import Literal

from howdah import Event, Transaction
from howdah_lab.torture.app import Happened, Ordered, app, leave

RELEASE = "HOWDAH_TORTURE_RELEASE"
"""The environment variable with the release of a node; unset: the node declares nothing of this module."""
Release = Literal["old", "new"]
OLD: Release = "old"
NEW: Release = "new"

NEVER = "0 0 1 1 *"
"""A slot that does not come during a run: a node that counts on with it silences its schedule."""
CRONS: dict[str, dict[str, str]] = {
    "ticks": {OLD: "*/2 * * * * *", NEW: "1-59/2 * * * * *"},
    "rare": {OLD: NEVER, NEW: "*/2 * * * * *"},
}
"""The schedules, with the expression of each release. No slot belongs to two expressions of one schedule."""
EVERY = 2.0
"""Seconds between two slots."""
TYPES: dict[str, list[type]] = {OLD: [Happened], NEW: [Happened, Ordered]}
"""The filter of the consumer ``widened``."""
PARTITIONS: dict[str, int] = {OLD: 2, NEW: 3}
"""The partitions of the consumer ``cut``."""
STALLED_AFTER: dict[str, float] = {OLD: 4.0, NEW: 10.0}
"""Seconds of silence after which a row of the table is taken from its node."""


def of_this_process() -> str:
    """Return the release of this process; empty if it has none."""
    return os.environ.get(RELEASE, "")


def declare(release: str) -> None:
    """Declare the schedules and consumers as this release does."""

    @app.task(queue="jobs")
    async def tick(schedule: str, release: str) -> None:
        """Do nothing: that it was enqueued, when and for which slot is what counts."""

    for name, crons in CRONS.items():
        app.schedule(name, tick.job(name, release), cron=crons[release])

    @app.consumer("widened", types=TYPES[release])
    async def widened(event: Event, tx: Transaction) -> None:
        """Write an effect for every event of the release's types."""
        await leave(tx, "widened", event.data.mark, stream=event.stream, version=event.version)

    @app.consumer("cut", types=[Happened], partitions=PARTITIONS[release])
    async def cut(event: Event, tx: Transaction) -> None:
        """Write an effect for every event, in the release's number of partitions."""
        await leave(tx, "cut", event.data.mark, stream=event.stream_id, version=event.version)
