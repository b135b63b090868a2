"""Secrets in rows of tables are hidden in what remote workers report, as those of jobs are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control_plane.conftest import serving
from howdah import Howdah, Secret
from table.ddl import ddl

pytestmark = pytest.mark.anyio
CARD = "4111-2222-3333-4444"


class Parcel(msgspec.Struct):
    id: int
    card: Secret[str]


@pytest.mark.parametrize("readable", [True, False], ids=["readable", "the view raises"])
async def test_a_failure_that_a_worker_reports_does_not_keep_the_secrets_of_its_row(
    app: Howdah, conn: Any, readable: bool
) -> None:
    await conn.execute(ddl("parcel", extra="card text"))
    await conn.execute("insert into parcel (state, card) values ('queued', $1)", CARD)
    app.table("parcel", record=Parcel, max_attempts=1)
    async with serving(app) as plane:
        worker = await plane.worker(kinds=[], tables=["parcel"])
        [row] = await worker.claim(store="parcel")
        if not readable:
            await conn.execute("alter table parcel rename column card to gone")
        report = {"id": row["id"], "token": row["token"], "attempt": 1, "outcome": "failed", "took": 100}
        texts = {"error": "ValueError", "message": f"card {CARD} refused", "traceback": f"line 1\n{CARD}"}
        answer = await worker.ack({**report, **texts}, store="parcel")

    assert answer.status == 200, answer.body
    kept = await conn.fetchrow("select * from parcel")
    values = {name: str(value) for name, value in kept.items() if name not in ("card", "gone")}
    assert kept["state"] == "failed", values
    assert not [name for name, value in values.items() if CARD in value], values
