"""The page of one job: fields, history, log lines, and why it does not run."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from howdah.dashboard.errors import RequestError
from howdah.dashboard.job_filter import mark
from howdah.dashboard.request import DashboardPage, DashboardRequest
from howdah.jobs.rows import JobRow, shown
from howdah.secrets import marks

MOST_LINES = 500


class LifeStep(NamedTuple):
    """One thing that happened to a job."""

    at: Any
    kind: str
    """good, bad, warn, now or nothing."""
    what: str
    detail: str = ""
    trace: str | None = None


async def job(visit: DashboardRequest) -> Response:
    """All that is known of it."""
    id, site = visit.request.path_params["id"], visit.site
    row = await site.admin.get(id) if id < 2**63 else None
    if row is None:
        raise RequestError(404, f"There is no job {id}.", "It may have been deleted or pruned.")
    seen = shown(row, site.redact)
    lines = await site.fetch("last_lines", id, MOST_LINES)
    [said] = await site.fetch("progress", id) or [None]
    return visit.page(
        "job.html",
        job=seen,
        mark=mark(row),
        gates=await site.why.job(id) if row.state in ("queued", "running") else [],
        steps=steps(seen),
        lines=lines[::-1],
        most_lines=MOST_LINES,
        progress=said if row.state == "running" else None,
        runs=[_run(visit, row, each) for each in await site.fetch("runs", id)],
        trace=_trace(visit, row),
        trail=await site.admin.audit(thing="job", id=id, limit=20),
    )


def steps(job: JobRow) -> list[LifeStep]:
    """Return the history of the job, in order."""
    found = [LifeStep(job.enqueued_at, "", f"enqueued to {job.queue}")]
    for each in job.attempts:
        where = f" on {each.node_name or each.node}" if each.node else ""
        kind = "warn" if each.outcome in ("retry", "lost") else "bad"
        what = {"retry": "failed, to be tried again", "lost": "lost: its node went silent"}.get(
            each.outcome, each.outcome
        )
        error = ": ".join(filter(None, (each.error, each.message)))
        found.append(LifeStep(each.ended_at, kind, f"attempt {each.attempt}{where} {what}", error, each.traceback))
    if job.state == "running":
        found.append(LifeStep(job.started_at, "now", f"attempt {job.attempt} runs on {job.node_name or job.node}"))
    elif job.state == "done":
        where = f" on {job.node_name or job.node}" if job.node else ""
        found.append(LifeStep(job.finished_at, "good", f"done by attempt {job.attempt}{where}"))
    elif job.state in ("failed", "cancelled") and not (job.attempts and job.attempts[-1].outcome == job.state):
        found.append(LifeStep(job.finished_at, "bad", job.state, job.error or ""))
    elif job.state == "queued":
        found.append(LifeStep(job.run_at, "now", "waits"))
    return found


def _run(visit: DashboardRequest, job: JobRow, row: Any) -> dict[str, Any]:
    redact = visit.site.redact
    spec, result = (None if row[name] is None else msgspec.json.decode(row[name]) for name in ("spec", "result"))
    return {
        **row,
        "spec": redact(spec, marks(job.meta), kind=job.kind),
        "result": redact(result, kind=job.kind, part="result"),
    }


def _trace(visit: DashboardRequest, job: JobRow) -> tuple[str, str | None] | None:
    """The id of its trace, and where it is shown."""
    parts = (job.trace or "").split("-")
    if len(parts) != 4:
        return None
    where = visit.site.trace_url
    return parts[1], where.replace("{trace}", parts[1]) if where else None


PAGES = [DashboardPage("GET", "/jobs/{id:int}", "read", job)]
