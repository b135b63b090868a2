"""`howdah schedules`."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

from howdah.cli import main
from howdah.maintenance.scheduler import Scheduler


@pytest.fixture
def declared(app, database):
    @app.task
    async def report() -> None: ...

    app.schedule("nightly", report.job(), cron="30 2 * * *", zone="Europe/Berlin")
    app.schedule("often", report.job(), cron="* * * * * *")

    async def declare():
        scheduler = Scheduler(database, app.schedules, app._clients.client())
        await scheduler.tick()
        await scheduler.close()
        await app.close()

    asyncio.run(declare())


def howdah(database, *args):
    result = CliRunner().invoke(main, ["schedules", "--dsn", database.dsn, *args])
    return result.exit_code, result.output


def test_schedules_are_listed_the_next_one_first(declared, database):
    code, text = howdah(database, "--json")
    rows = json.loads(text)

    assert code == 0
    assert [row["name"] for row in rows] == ["often", "nightly"]
    assert (rows[1]["cron"], rows[1]["zone"], rows[1]["paused"]) == ("30 2 * * *", "Europe/Berlin", False)
    assert rows[0]["last_state"] == "queued"


def test_a_schedule_can_be_paused_and_resumed(declared, database):
    assert json.loads(howdah(database, "--pause", "often", "--json")[1])[-1]["paused"]
    assert "paused" in howdah(database)[1]
    assert not any(row["paused"] for row in json.loads(howdah(database, "--resume", "often", "--json")[1]))


def test_an_unknown_schedule_is_an_error(declared, database):
    code, text = howdah(database, "--pause", "never")
    assert code == 2
    assert "there is no schedule 'never'" in text


def test_none_are_said_to_be_none(database):
    assert "declare one with app.schedule" in howdah(database)[1]
