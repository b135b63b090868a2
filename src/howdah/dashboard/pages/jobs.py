"""Jobs: the list by a filter, one job with its history and its gates, and failures grouped by their errors."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from starlette.responses import Response

from howdah.dashboard.context import PAGE_TIMEOUT
from howdah.dashboard.protection import RequestError
from howdah.dashboard.request import DashboardPage, DashboardRequest
from howdah.errors import ConfigError
from howdah.job import State
from howdah.jobs.actions import ExpectedJob
from howdah.jobs.rows import JobRow, shown, shown_failures
from howdah.jobs.search import TIMES, Filter
from howdah.redact import readable_json
from howdah.secrets import marks

ON_A_PAGE = 50
MOST_LINES = 500
"""Lines of a job's log that its page shows."""
SEARCHED, MOST_SEARCHED = 2000, 10_000
"""Failures that are read, at first and when asked for more: each costs the server some 50 µs."""
SPANS = {"hour": 3600.0, "day": 86400.0, "week": 7 * 86400.0, "all": None}
FILTER_TEXTS = ("state", "queue", "kind", "key", "text", "fingerprint")


class LifeStep(NamedTuple):
    """One thing that happened to a job."""

    at: Any
    kind: str
    """good, bad, warn, now or nothing."""
    what: str
    detail: str = ""
    trace: str | None = None


async def jobs(visit: DashboardRequest) -> Response:
    """One page of the jobs that match the filter, newest first."""
    context, filter = visit.context, filter_of(visit.param)
    page, snapshot = await asyncio.gather(
        context.admin.list(
            filter, before=visit.number("before"), limit=ON_A_PAGE, patience=PAGE_TIMEOUT, redact=context.redact
        ),
        context.snapshot(),
    )
    return visit.page(
        "jobs.html",
        jobs=[shown(row, context.redact) for row in page],
        looked=page.looked,
        cut=page.cut,
        filter=filter,
        fields=fields_of(filter),
        mark=reference,
        next=page.next,
        first=visit.number("before") is None,
        live=visit.number("before") is None and filter.text is None,
        states=list(State),
        counts={"queued": snapshot.totals.queued + snapshot.totals.scheduled, "running": snapshot.totals.running},
        queues=[queue.name for queue in snapshot.queues if not queue.table],
        kinds=sorted(context.app.tasks),
    )


async def job(visit: DashboardRequest) -> Response:
    """One job."""
    id, context = visit.request.path_params["id"], visit.context
    row = await context.admin.get(id) if id < 2**63 else None
    if row is None:
        raise RequestError(404, f"There is no job {id}.", "It may have been deleted or pruned.")
    seen = shown(row, context.redact)
    lines = await context.fetch("last_lines", id, MOST_LINES)
    [progress] = await context.fetch("progress", id) or [None]
    return visit.page(
        "job.html",
        job=seen,
        mark=reference(row),
        gates=await context.why.job(id) if row.state in ("queued", "running") else [],
        steps=steps(seen),
        lines=lines[::-1],
        most_lines=MOST_LINES,
        progress=progress if row.state == "running" else None,
        runs=[_run(visit, row, each) for each in await context.fetch("runs", id)],
        trace=_trace(visit, row),
        trail=await context.admin.audit(thing="job", id=id, limit=20),
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
    redact = visit.context.redact
    spec, result = (None if row[name] is None else readable_json(row[name]) for name in ("spec", "result"))
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
    where = visit.context.trace_url
    return parts[1], where.replace("{trace}", parts[1]) if where else None


async def failures(visit: DashboardRequest) -> Response:
    """Failed jobs, grouped by error, the largest group first."""
    since = visit.param("since", "day")
    since = since if since in SPANS else "day"
    queue, kind = visit.param("queue") or None, visit.param("kind") or None
    more = visit.param("look") == "more"
    newest = MOST_SEARCHED if more else SEARCHED
    found = await visit.context.admin.failures(queue=queue, kind=kind, seconds=SPANS[since], newest=newest)
    return visit.page(
        "failures.html",
        found=shown_failures(found, visit.context.redact),
        digests={each.example: digest(each.fingerprint) for each in found.groups},
        since=since,
        spans=SPANS,
        queue=queue or "",
        kind=kind or "",
        more=more,
        most=MOST_SEARCHED,
    )


def digest(fingerprint: str) -> str:
    """Return a fingerprint as links name it: its text may hold what the page hides."""
    return hashlib.md5(fingerprint.encode(), usedforsecurity=False).hexdigest()


# ---------------------------------------------------------------- filters and job ids in URLs and forms


def filter_of(get: Callable[[str, str], str]) -> Filter:
    """Return the filter of a URL or form."""
    given: dict[str, Any] = {name: get(name, "").strip() or None for name in FILTER_TEXTS}
    given |= {name: parse_time(name, get(name, "").strip()) for name in TIMES}
    try:
        return Filter(**given)
    except ConfigError as error:
        raise RequestError(400, f"These jobs cannot be shown: {error}.", "Change the filter.") from None


def fields_of(filter: Filter) -> dict[str, str]:
    """Return a filter as form fields; a time keeps its seconds, or an action would change more jobs than were shown."""
    return {name: _sent(value) if isinstance(value, datetime) else str(value) for name, value in filter.given.items()}


def _sent(at: datetime) -> str:
    return at.isoformat(timespec="auto" if at.second or at.microsecond else "minutes").removesuffix("+00:00")


def reference(job: JobRow) -> str:
    """Return a job as a form names it: with its state and end, as the visitor saw them."""
    seen = ExpectedJob.of(job)
    return f"{seen.id}.{seen.state}.{seen.ended.isoformat() if seen.ended else ''}"


def parse_reference(text: str) -> ExpectedJob:
    """Return the job that a form names; a bare id means any state.

    >>> parse_reference("7"), parse_reference("8.queued.")
    (ExpectedJob(id=7, state=None, ended=None), ExpectedJob(id=8, state='queued', ended=None))
    """
    id, _, rest = text.partition(".")
    state, _, ended = rest.partition(".")
    try:
        if not id.isdecimal() or len(id) > 18 or len(state) > 20:
            raise ValueError(text)
        at = datetime.fromisoformat(ended) if ended else None
        if at is not None and at.tzinfo is None:
            raise ValueError(text)
        return ExpectedJob(int(id), state or None, at)
    except ValueError:
        raise RequestError(400, f"{text[:40]!r} is no job.", "Reload the page and try again.") from None


def parse_time(name: str, text: str) -> datetime | None:
    """Parse a time as a browser sends it; without a zone it is UTC."""
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise RequestError(
            400, f"{name} must be a time, got {text[:40]!r}.", "Write it like 2026-01-31T12:00."
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


PAGES = [
    DashboardPage("GET", "/jobs", "read", jobs),
    DashboardPage("GET", "/jobs/{id:int}", "read", job),
    DashboardPage("GET", "/failures", "read", failures),
]
