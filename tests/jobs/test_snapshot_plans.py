"""What `howdah top` reads every second, among a million finished and a hundred thousand waiting jobs."""

from __future__ import annotations

import pytest

from howdah.observe.snapshot import MINUTES, MOST_NODES, MOST_RUNNING
from howdah.postgres import sql
from kit.job_history import LATER, NODES, RUNNING, SINGLES

pytestmark = pytest.mark.anyio

STATEMENTS = sql.load("howdah.observe", schema="howdah")
AS_READ = "set local enable_seqscan = off"


async def test_what_finished_lately(measure):
    seen = await measure(STATEMENTS["minutes"], MINUTES, before=AS_READ)
    assert seen.rows < 2 * MINUTES
    assert seen.pages < 50


async def test_queues_are_counted_from_what_lives(measure):
    """Each run, each job that is not due, each job under lease; no history."""
    seen = await measure(STATEMENTS["depth"], before=AS_READ)
    assert seen.walked == {}
    assert seen.rows < 4 * (SINGLES + LATER + RUNNING)
    assert seen.pages < 4 * (SINGLES + LATER + RUNNING)


async def test_the_jobs_that_run_for_longest(measure):
    seen = await measure(STATEMENTS["running"], MOST_RUNNING, before=AS_READ)
    assert seen.walked == {}
    assert seen.rows < 4 * (NODES + MOST_RUNNING)
    assert seen.pages < 2000


async def test_nodes(measure):
    seen = await measure(STATEMENTS["nodes"], MOST_NODES, before=AS_READ)
    assert seen.rows <= 2 * NODES
    assert seen.pages < 500
