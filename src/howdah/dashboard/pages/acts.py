"""Acts on jobs: chosen ones, or all that fit a filter, with the count first and the progress as it goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import cast

from starlette.responses import Response, StreamingResponse

from howdah.audit import acting_as
from howdah.dashboard.choice import chosen, fields, marked
from howdah.dashboard.refusal import Refused
from howdah.dashboard.visit import Page, Visit
from howdah.errors import ConfigError
from howdah.jobs.acts import CHUNK, PAST, Verb, check, suitable
from howdah.jobs.filter import Filter
from howdah.jobs.rows import Said
from howdah.jobs.seen import Seen

MOST = 10_000
"""Jobs one act by filter changes; the same act again goes on."""
NAMES = {"retry": "Retry", "cancel": "Cancel", "delete": "Delete", "reprioritize": "Re-prioritise", "move": "Move"}
DETAILS = {
    "retry": "They go back to their queue with no attempt used.",
    "cancel": "Waiting ones are cancelled at once, running ones by the next heartbeat of their node.",
    "delete": "They are gone for good, with their attempts, results and logs.",
    "reprioritize": "They queue behind those that have this priority already.",
    "move": "They queue at the end of the other queue.",
}


async def act(visit: Visit) -> Response:
    """Ask, then do it."""
    verb = visit.field("verb")
    to = _to(verb, visit.field("to", "").strip())
    try:
        check(verb, to)
    except ConfigError as error:
        raise Refused(400, f"{error}.", "Correct it and try again.") from None
    verb = cast("Verb", verb)
    if visit.field("scope", "chosen") == "all":
        return await _on_all(visit, verb, to)
    jobs = [marked(each) for each in visit.fields("id")]
    if not jobs:
        raise Refused(400, "No job is chosen.", "Tick some, or act on all that fit.")
    if not visit.sure():
        what = f"job {jobs[0].id}" if len(jobs) == 1 else f"{len(jobs)} jobs"
        return _ask(visit, verb, what, to)
    said = await _each(visit, verb, jobs, to)
    back = visit.field("back", "") if visit.field("back", "").startswith("/jobs") else "/jobs"
    if verb == "delete" and back.startswith("/jobs/"):
        back = "/jobs"
    return visit.go(back, _summary(verb, said))


async def _each(visit: Visit, verb: Verb, jobs: list[Seen], to: str | int | None) -> list[Said]:
    admin = visit.site.admin
    match verb:
        case "reprioritize":
            return list(await admin.reprioritize(jobs, cast("int", to)))
        case "move":
            return list(await admin.move(jobs, cast("str", to)))
        case _:
            return list(await getattr(admin, verb)(jobs))


async def _on_all(visit: Visit, verb: Verb, to: str | int | None) -> Response:
    filter = chosen(visit.field)
    try:
        filter = suitable(verb, filter)
    except ConfigError as error:
        raise Refused(400, f"{error}.", "Choose the state first.") from None
    count = await visit.site.admin.count(filter, most=MOST + 1)
    if not visit.sure():
        if not count.jobs:
            raise Refused(400, f"There are no {filter}.", "Widen the filter.")
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


async def _work(visit: Visit, verb: Verb, filter: Filter, to: str | int | None, total: int) -> AsyncIterator[str]:
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
                    "bulk_step.html", did=did, left=left, total=total, verb=PAST[verb], over=True, error=error
                )
                return
        did, left, before = did + acted.did, left + acted.left, acted.next
        over = before is None or did + left >= MOST
        yield visit.text("bulk_step.html", did=did, left=left, total=total, verb=PAST[verb], over=over, error=None)
        if over:
            return


def _ask(visit: Visit, verb: str, what: str, to: str | int | None, more: str = "") -> Response:
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
            raise Refused(400, f"{text[:40]!r} is no priority.", "Give a number from -100 to 100.") from None
    return text if verb == "move" else None


def _summary(verb: str, said: list[Said]) -> str:
    did = sum(each.did for each in said)
    left = Counter(each.said for each in said if not each.did)
    rest = ", ".join(f"{count} left alone ({reason})" for reason, count in left.most_common(3))
    if len(said) == 1:
        word = "left alone, since it changed meanwhile" if said[0].said == "changed" else said[0].said
        return f"Job {said[0].id}: {word}."
    return f"{did} of {len(said)} jobs {PAST[verb]}{'; ' + rest if rest else ''}."


PAGES = [Page("POST", "/jobs/act", "all", act)]
