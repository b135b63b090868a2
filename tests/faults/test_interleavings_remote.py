"""A worker without a database that says two things of one attempt: the first holds."""

from __future__ import annotations

from typing import Any

import pytest

from howdah.control_plane.reports import ReportRecorder
from howdah.outcome import Ack, Outcome
from howdah.postgres.database import Database
from kit.interleave_jobs import SingleConnection, ack, lay
from kit.job_invariants import wrongs

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("first", [Outcome.RETRY, Outcome.SNOOZED, Outcome.RELEASED])
async def test_who_gave_a_job_back_cannot_end_it_any_more(database: Database, conn: Any, first: Outcome):
    prepared = await lay(conn)
    session: Any = SingleConnection(conn)
    recorder = ReportRecorder(database, session)
    job = prepared.held(6)
    await ack(conn, prepared.node, [Ack(job, first, 1, delay=1000.0, error="E")], [])

    own = await recorder.covered(prepared.node, [Ack(job, Outcome.OK, 1)])
    assert await ack(conn, prepared.node, own, []) == {}
    assert await wrongs(conn, prepared.ids) == []
