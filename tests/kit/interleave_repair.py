"""Self-repair, and the acts on jobs that the other interleavings leave out."""

from __future__ import annotations

from typing import Any

from howdah.job import NewJob
from howdah.jobs.bulk import BulkEnqueue
from kit.interleave import Form
from kit.interleave_jobs import FORMS, RUN, STATEMENTS, PreparedJobs

AGE = """
update howdah.lease set claimed_at = now() - interval '1 hour';
update howdah.done set finished_at = now() - interval '1 hour';
update howdah.later set due_at = now() - interval '1 second';
"""
"""Everything is old enough to be repaired, and to become ready."""


async def repair(_ground: PreparedJobs, conn: Any) -> dict[str, int]:
    """Look at all jobs once."""
    return dict(await conn.fetchrow("select requeued, ended, leases from howdah.repair(0)"))


def rearranging(verb: str, to: Any, *numbers: int) -> Any:
    async def do(prepared: PreparedJobs, conn: Any) -> dict[int, str]:
        rows = await conn.fetch(STATEMENTS[verb], prepared.at(*numbers), None, to)
        return {row["id"]: row["result"] for row in rows}

    return do


async def enqueue(_ground: PreparedJobs, conn: Any) -> int:
    """A bulk of waiting and delayed jobs, with a gap in the sequence of ids before it."""
    await conn.fetchval("select count(nextval('howdah.job_id')) from generate_series(1, 5)")
    jobs = [NewJob(kind="note", delay=None if n % 2 else 1000.0, key=f"new {n}") for n in range(6)]
    return len(await BulkEnqueue("howdah", STATEMENTS).enqueue(conn, jobs))


async def promote(_ground: PreparedJobs, conn: Any) -> int:
    return int((await conn.fetchrow(STATEMENTS["promote"], ["default"], 100))["promoted"])


REPAIR = Form(act="repair", name="", do=repair)
BESIDE = [
    *FORMS,
    Form(act="move", name="", do=rearranging("move", "other", 6, 8, 9), locks=RUN),
    Form(act="reprioritize", name="", do=rearranging("reprioritize", 7, 3, 9, 11), locks=RUN),
    Form(act="enqueue", name="many", do=enqueue),
    Form(act="promote", name="", do=promote, locks={"later": "update"}, skips=True),
]
