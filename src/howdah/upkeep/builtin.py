"""Tasks that come with Howdah: upkeep one may also enqueue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from howdah.handler import Handler
from howdah.pg.database import Database
from howdah.upkeep.pruner import Pruner, Retention

PRUNE = "howdah:prune"


def prune(database: Callable[[], Database], retention: Callable[[], Retention]) -> Handler:
    """The handler of ``howdah:prune``; it answers with what it did."""

    async def prune(*, done: float | None = None, failed: float | None = None) -> dict[str, int]:
        usual = retention()
        keep = replace(
            usual, done=usual.done if done is None else done, failed=usual.failed if failed is None else failed
        )
        pruned = await Pruner(database(), keep).prune()
        return {"partitions": pruned.partitions, "jobs": pruned.jobs}

    return Handler(PRUNE, prune)
