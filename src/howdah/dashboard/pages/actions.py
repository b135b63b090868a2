"""Actions on jobs: on chosen ones, or on all that match a filter, with their number first and then the progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import cast

from starlette.responses import Response, StreamingResponse

from howdah.audit import acting_as
from howdah.dashboard.pages.jobs import fields_of, filter_of, parse_reference
from howdah.dashboard.protection import RequestError
from howdah.dashboard.request import DashboardPage, DashboardRequest
from howdah.errors import ConfigError
from howdah.jobs.actions import CHUNK, PAST_TENSE, ExpectedJob, Verb, check, suitable
from howdah.jobs.rows import ActionResult
from howdah.jobs.search import Filter

MOST = 10_000
"""Largest number of jobs that one action by filter changes; repeat it for the rest."""
NAMES = {"retry": "Retry", "cancel": "Cancel", "delete": "Delete", "reprioritize": "Re-prioritise", "move": "Move"}
DETAILS = {
    "retry": "They go back to their queue with no attempt used.",
    "cancel": "Waiting ones are cancelled at once, running ones by the next heartbeat of their node.",
    "delete": "They are deleted with their attempts, results and logs. This cannot be undone.",
    "reprioritize": "They are queued behind jobs that already have this priority.",
    "move": "They are queued at the end of the other queue.",
}


async def act(visit: DashboardRequest) -> Response:
    """Ask for confirmation, then change the jobs."""
    verb = visit.field("verb")
    to = _to(verb, visit.field("to", "").strip())
    try:
        check(verb, to)
    except ConfigError as error:
        raise RequestError(400, f"{error}.", "Correct it and try again.") from None
    verb = cast("Verb", verb)
    if visit.field("scope", "chosen") == "all":
        return await _on_all(visit, verb, to)
    jobs = [parse_reference(each) for each in visit.fields("id")]
    if not jobs:
        raise RequestError(400, "No job is chosen.", "Tick some, or act on all that fit.")
    if not visit.confirmed():
        what = f"job {jobs[0].id}" if len(jobs) == 1 else f"{len(jobs)} jobs"
        return _ask(visit, verb, what, to)
    results = await _each(visit, verb, jobs, to)
    back = visit.field("back", "") if visit.field("back", "").startswith("/jobs") else "/jobs"
    if verb == "delete" and back.startswith("/jobs/"):
        back = "/jobs"
    return visit.redirect(back, _summary(verb, results))


async def _each(
    visit: DashboardRequest, verb: Verb, jobs: list[ExpectedJob], to: str | int | None
) -> list[ActionResult]:
    admin = visit.context.admin
    match verb:
        case "reprioritize":
            return list(await admin.reprioritize(jobs, cast("int", to)))
        case "move":
            return list(await admin.move(jobs, cast("str", to)))
        case _:
            return list(await getattr(admin, verb)(jobs))


async def _on_all(visit: DashboardRequest, verb: Verb, to: str | int | None) -> Response:
    filter = filter_of(visit.field)
    try:
        filter = suitable(verb, filter)
    except ConfigError as error:
        raise RequestError(400, f"{error}.", "Choose the state first.") from None
    count = await visit.context.admin.count(filter, most=MOST + 1)
    if not visit.confirmed():
        if not count.jobs:
            raise RequestError(400, f"There are no {filter}.", "Widen the filter.")
        what = f"{count} {filter}"
        more = f" At most {MOST:,} at once, the newest first; do it again for the rest." if count.more else ""
        return _ask(visit, verb, what, to, more)
    top = visit.text("bulk.html", verb=NAMES[verb], filter=str(filter), back=visit.url("/jobs", **fields_of(filter)))
    begin, end = top.split("<!-- steps -->")
    stream = _work(visit, verb, filter, to, min(count.jobs, MOST))
    return StreamingResponse(_page(begin, stream, end), media_type="text/html")


async def _page(begin: str, steps: AsyncIterator[str], end: str) -> AsyncIterator[str]:
    yield begin
    async for step in steps:
        yield step
    yield end


async def _work(
    visit: DashboardRequest, verb: Verb, filter: Filter, to: str | int | None, total: int
) -> AsyncIterator[str]:
    """Change a thousand jobs at a time; yield a line of progress for each."""
    did = left = 0
    before: int | None = None
    while True:
        with acting_as(visit.by):
            try:
                acted = await visit.context.admin.act(
                    verb, filter, to=to, before=before, limit=min(CHUNK, MOST - did - left)
                )
            except Exception as error:
                yield visit.text(
                    "bulk_step.html", did=did, left=left, total=total, verb=PAST_TENSE[verb], over=True, error=error
                )
                return
        did, left, before = did + acted.did, left + acted.left, acted.next
        over = before is None or did + left >= MOST
        counts = {"did": did, "left": left, "total": total}
        yield visit.text("bulk_step.html", **counts, verb=PAST_TENSE[verb], over=over, error=None)
        if over:
            return


def _ask(visit: DashboardRequest, verb: str, what: str, to: str | int | None, more: str = "") -> Response:
    aim = {"reprioritize": f" to priority {to}", "move": f" to queue {to}"}.get(verb, "")
    return visit.confirm(
        f"{NAMES[verb]} {what}{aim}?",
        verb=NAMES[verb],
        detail=DETAILS[verb] + more,
        danger=verb in ("delete", "cancel"),
    )


def _to(verb: str, text: str) -> str | int | None:
    if verb == "reprioritize":
        try:
            return int(text)
        except ValueError:
            raise RequestError(400, f"{text[:40]!r} is no priority.", "Give a number from -100 to 100.") from None
    return text if verb == "move" else None


def _summary(verb: str, results: list[ActionResult]) -> str:
    did = sum(each.did for each in results)
    left = Counter(each.result for each in results if not each.did)
    rest = ", ".join(f"{count} left alone ({reason})" for reason, count in left.most_common(3))
    if len(results) == 1:
        word = "left alone, since it changed meanwhile" if results[0].result == "changed" else results[0].result
        return f"Job {results[0].id}: {word}."
    return f"{did} of {len(results)} jobs {PAST_TENSE[verb]}{'; ' + rest if rest else ''}."


PAGES = [DashboardPage("POST", "/jobs/act", "all", act)]
