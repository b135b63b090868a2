"""What needs the database is not offered over HTTP, and whoever asks for it hears why."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from control_plane.conftest import serving
from howdah import Budget, ConfigError, Howdah, Transaction
from howdah.remote.source import Capabilities
from table.ddl import ddl

pytestmark = pytest.mark.anyio

REASONS = {"charge": "it is transactional", "ledger": "it is transactional", "renders": "it has a budget"}


def apart(app: Howdah) -> None:
    """An app with tasks and tables of all sorts."""

    @app.task
    async def noop() -> None: ...

    @app.task(transactional=True)
    async def charge(tx: Transaction) -> None: ...

    @app.table("uploads").handler
    async def upload(record: Any) -> None: ...

    @app.table("ledger", transactional=True).handler
    async def book(record: Any, tx: Transaction) -> None: ...

    @app.table("renders", budget=Budget(memory=100, cost={"memory": "size"})).handler
    async def render(record: Any) -> None: ...


async def test_a_control_plane_says_what_it_does_not_offer_and_why(app: Howdah, conn: Any, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "howdah")
    apart(app)
    await conn.execute(ddl())
    async with serving(app) as plane:
        messages = [line for line in caplog.messages if "not offered over HTTP" in line]
        assert [line.split()[0] for line in messages] == ["charge", "ledger", "renders"]
        for line, why in zip(messages, REASONS.values(), strict=True):
            assert why in line

        for name, why in REASONS.items():
            field = "kinds" if name == "charge" else "tables"
            body = {"hostname": "w", "kinds": ["noop"], "tables": ["uploads"]}
            refused = await plane.ask("POST", "/workers/register", {**body, field: [*body[field], name]})
            assert (refused.status, refused.error["field"]) == (400, field)
            assert refused.error["message"].startswith(
                f"{name!r} is not offered over HTTP, only to nodes with the database"
            )
            assert why in refused.error["message"]
        assert await conn.fetchval("select count(*) from howdah.node") == 0
        await plane.worker(kinds=["noop", "made elsewhere"], tables=["uploads"])


def test_a_worker_without_a_database_says_what_it_leaves_alone_and_why(caplog: Any) -> None:
    app = Howdah()
    apart(app)
    able = Capabilities.of(app)

    assert (list(able.jobs), list(able.tables)) == (["noop"], ["uploads"])
    assert len(caplog.messages) == len(REASONS)
    for line, (name, why) in zip(caplog.messages, REASONS.items(), strict=True):
        assert line.startswith(f"{name} is not run here, since it needs a node with the database: {why}")


def test_a_worker_that_would_have_nothing_to_do_does_not_start() -> None:
    app = Howdah()

    @app.task(transactional=True)
    async def charge(tx: Transaction) -> None: ...

    with pytest.raises(ConfigError, match="no task or table that can be run without a database"):
        Capabilities.of(app)
