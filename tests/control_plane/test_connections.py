"""A control plane opens no more connections to PostgreSQL than its options state."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from howdah import Howdah
from howdah.clients import POOL_SIZE
from howdah.control_plane.job_queue import SessionPool
from howdah.control_plane.options import OTHER_CONNECTIONS, TABLE_CONNECTIONS, ServeOptions
from howdah.control_plane.server import ControlPlaneServer
from howdah.dashboard import context
from howdah.options import options_of
from howdah.postgres.database import Session
from kit.roles import serve_as_fleet
from table.ddl import ddl

pytestmark = pytest.mark.anyio
LISTEN = 1
"""The connection of the wake-ups is no session."""


@pytest.fixture
def sessions(monkeypatch) -> Counter[str]:
    """How many sessions were made, by role; each opens a connection when it is used."""
    made: Counter[str] = Counter()
    before = Session.__init__

    def init(self: Session, database: Any, role: str, **more: Any) -> None:
        if role != "check" and not isinstance(self, SessionPool):  # one is closed at once, the other holds sessions
            made[role] += 1
        before(self, database, role, **more)

    monkeypatch.setattr(Session, "__init__", init)
    return made


async def count(app: Howdah, sessions: Counter[str]) -> int:
    serve_as_fleet(app)
    async with ControlPlaneServer(app, ServeOptions(dashboard=False)).open():
        return sessions.total() + LISTEN


async def test_without_tables_and_schedules(app, sessions):
    assert await count(app, sessions) == OTHER_CONNECTIONS, sessions


async def test_a_schedule_takes_one_more(app, sessions):
    @app.task
    async def tidy() -> None: ...

    app.schedule("tidy", tidy.job(), cron="0 3 * * *")

    assert await count(app, sessions) == OTHER_CONNECTIONS + 1, sessions


async def test_a_table_takes_four_more(app, conn, sessions):
    await conn.execute(ddl())
    app.table("uploads")

    assert await count(app, sessions) == OTHER_CONNECTIONS + TABLE_CONNECTIONS, sessions


def test_the_options_state_them():
    helps = {option.name: option.help for option in options_of(ServeOptions)}

    assert f"up to {OTHER_CONNECTIONS} more" in helps["pool"]
    assert f"{POOL_SIZE} for enqueueing, {TABLE_CONNECTIONS} for each table, and 1 for schedules" in helps["pool"]
    assert f"up to {context.POOL} more PostgreSQL connections" in helps["dashboard"]
