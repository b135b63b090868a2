"""Jobs that require labels are unserved unless a live node has them."""

from __future__ import annotations

from typing import Any

import pytest

from howdah import Howdah
from howdah.diagnose.doctor import Doctor
from howdah.postgres.database import Database
from kit.node import eventually, node

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({}, "no live node serves 1 of build in builds+gpu"),
        ({"labels": ["gpu"]}, "a live node serves every queued job"),
        ({"queues": {"builds": None}, "labels": ["arm64", "gpu"]}, "a live node serves every queued job"),
        ({"queues": {"builds+gpu": None}}, "a live node serves every queued job"),
        ({"queues": {"mail": None}, "labels": ["gpu"]}, "no live node serves 1 of build in builds+gpu"),
    ],
    ids=["no label", "label", "queue and label", "queue with a label", "another queue"],
)
async def test_a_queue_with_labels(
    app: Howdah, database: Database, conn: Any, options: dict[str, Any], fact: str
) -> None:
    @app.task(queue="builds", requires=["gpu"])
    async def build() -> None: ...

    await app.admin.pause("builds+gpu")  # it shall wait
    await build.enqueue()
    async with node(app, **options):
        await eventually(lambda: conn.fetchval("select count(*) = 1 from howdah.node where state <> 'offline'"))
        [found] = [each for each in await Doctor(database).examine() if each.name == "unserved"]
    await app.close()

    assert found.fact == fact
