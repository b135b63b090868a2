"""Acts on jobs: chosen ones, or all that fit a filter, with the count first and the progress as it goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import cast

from starlette.responses import Response, StreamingResponse

from howdah.audit import acting_as
from howdah.dashboard.errors import RequestError
from howdah.dashboard.job_filter import chosen, fields, marked
from howdah.dashboard.request import DashboardPage, DashboardRequest
from howdah.errors import ConfigError
from howdah.jobs.actions import CHUNK, PAST_TENSE, Verb, check, suitable
from howdah.jobs.filter import ExpectedJob, Filter
from howdah.jobs.rows import ActionResult

MOST = 10_000
"""Jobs one act by filter changes; repeating the action continues."""
NAMES = {"retry": "Retry", "cancel": "Cancel", "delete": "Delete", "reprioritize": "Re-prioritise", "move": "Move"}
DETAILS = {
    "retry": "They go back to their queue with no attempt used.",
    "cancel": "Waiting ones are cancelled at once, running ones by the next heartbeat of their node.",
    "delete": "They are gone for good, with their attempts, results and logs.",
    "reprioritize": "They queue behind those that have this priority already.",
    "move": "They queue at the end of the other queue.",
}


async def act(visit: DashboardRequest) -> Response:
    """Ask, then do it."""
    verb = visit.field("verb")
    to = _to(verb, visit.field("to", "").strip())
    try:
        check(verb, to)
    except ConfigError as error:
        raise RequestError(400, f"{error}.", "Correct it and try again.") from None
    verb = cast("Verb", verb)
    if visit.field("scope", "chosen") == "all":
        return await _on_all(visit, verb, to)
    jobs = [marked(each) for each in visit.fields("id")]
    if not jobs:
        raise RequestError(400, "No job is chosen.", "Tick some, or act on all that fit.")
    if not visit.sure():
        what = f"job {jobs[0].id}" if len(jobs) == 1 else f"{len(jobs)} jobs"
        return _ask(visit, verb, what, to)
    said = await _each(visit, verb, jobs, to)
    back = visit.field("back", "") if visit.field("back", "").startswith("/jobs") else "/jobs"
    if verb == "delete" and back.startswith("/jobs/"):
        back = "/jobs"
    return visit.go(back, _summary(verb, said))


async def _each(
    visit: DashboardRequest, verb: Verb, jobs: list[ExpectedJob], to: str | int | None
) -> list[ActionResult]:
    admin = visit.site.admin
    match verb:
        case "reprioritize":
            return list(await admin.reprioritize(jobs, cast("int", to)))
        case "move":
            return list(await admin.move(jobs, cast("str", to)))
        case _:
            return list(await getattr(admin, verb)(jobs))


async def _on_all(visit: DashboardRequest, verb: Verb, to: str | int | None) -> Response:
    filter = chosen(visit.field)
    try:
        filter = suitable(verb, filter)
    except ConfigError as error:
        raise RequestError(400, f"{error}.", "Choose the state first.") from None
    count = await visit.site.admin.count(filter, most=MOST + 1)
    if not visit.sure():
        if not count.jobs:
            raise RequestError(400, f"There are no {filter}.", "Widen the filter.")
        what = f"{count} {filter}"
        more = f" At most {MOST:,} at once, the newest first; do it again for the rest." if count.more else ""
        return _ask(visit, verb, what, to, more)
    top = visit.text("bulk.html", verb=NAMES[verb], filter=str(filter), back=visit.url("/jobs", **fields(filter)))
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
    """A thousand at a time; each line says how far it is."""
    did = left = 0
    before: int | None = None
    while True:
        with acting_as(visit.by):
            try:
                acted = await visit.site.admin.act(
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
    return visit.ask(
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


def _summary(verb: str, said: list[ActionResult]) -> str:
    did = sum(each.did for each in said)
    left = Counter(each.said for each in said if not each.did)
    rest = ", ".join(f"{count} left alone ({reason})" for reason, count in left.most_common(3))
    if len(said) == 1:
        word = "left alone, since it changed meanwhile" if said[0].said == "changed" else said[0].said
        return f"Job {said[0].id}: {word}."
    return f"{did} of {len(said)} jobs {PAST_TENSE[verb]}{'; ' + rest if rest else ''}."


PAGES = [DashboardPage("POST", "/jobs/act", "all", act)]
