"""Consumers: where each stands, what halted it, what it set aside; pause, resume, skip, reset, and parked events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

from starlette.responses import Response

from howdah.dashboard.errors import RequestError
from howdah.dashboard.request import DashboardPage, DashboardRequest
from howdah.events.admin import To

PARKED_ON_A_PAGE = 50


async def consumers(visit: DashboardRequest) -> Response:
    """Every consumer, part by part, and the log they follow."""
    log = visit.site.log
    return visit.page("consumers.html", consumers=await log.consumers(), status=await log.status())


async def consumer(visit: DashboardRequest) -> Response:
    """One consumer, with what it set aside."""
    name, log = visit.param("name"), visit.site.log
    after = visit.number("after", 0) or 0
    return visit.page(
        "consumer.html",
        name=name,
        parts=await log.consumers(name),
        status=await log.status(),
        gates=await visit.site.why.consumer(name),
        parked=await log.parked(name, after=after, limit=PARKED_ON_A_PAGE),
        more=PARKED_ON_A_PAGE,
        redact=visit.site.redact,
    )


async def pause(visit: DashboardRequest) -> Response:
    """Let it rest."""
    name = visit.field("name")
    if not visit.sure():
        return visit.ask(
            f"Pause consumer {name}?",
            verb="Pause",
            detail="It finishes the batch at hand and stands still on every node until it is resumed.",
        )
    await visit.site.log.pause(name, visit.visitor.name)
    return visit.go("/consumer", f"Consumer {name} is paused.", name=name)


async def resume(visit: DashboardRequest) -> Response:
    """Let it go on."""
    name = visit.field("name")
    if not visit.sure():
        return visit.ask(
            f"Resume consumer {name}?",
            verb="Resume",
            detail="It resumes at its position. If it halted on an event, that event is tried again.",
        )
    was = await visit.site.log.resume(name)
    return visit.go("/consumer", f"Consumer {name} {'resumed' if was else 'was not paused'}.", name=name)


async def skip(visit: DashboardRequest) -> Response:
    """Go past the event it failed on."""
    name = visit.field("name")
    if not visit.sure():
        return visit.ask(
            f"Skip the event consumer {name} failed on?",
            verb="Skip",
            danger=True,
            detail="Its read model will lack what the event says, until it is reset and consumes it again.",
        )
    left = await visit.site.log.skip(name, events=visit.numbers("event") or None)
    return visit.go("/consumer", f"Consumer {name} skipped {_positions(left)}.", name=name)


async def reset(visit: DashboardRequest) -> Response:
    """Move it to another position."""
    name, to = visit.field("name"), _to(visit.field("to"))
    if not visit.sure():
        where = "the " + to if isinstance(to, str) else str(to)
        return visit.ask(
            f"Reset consumer {name} to {where}?",
            verb="Reset",
            danger=True,
            detail="It handles again, or leaves out, all events between here and there.",
        )
    position = await visit.site.log.reset(name, to)
    return visit.go("/consumer", f"Consumer {name} stands at {position:,} now.", name=name)


async def retry_parked(visit: DashboardRequest) -> Response:
    """Have events that were set aside tried again."""
    name, chosen = visit.field("name"), visit.numbers("position") or None
    what = "all parked events" if chosen is None else f"{len(chosen)} parked event{'s' * (len(chosen) > 1)}"
    if not visit.sure():
        return visit.ask(f"Retry {what} of {name}?", verb="Retry", detail="Their streams may have gone on since.")
    tried = await visit.site.log.retry_parked(name, chosen)
    return visit.go("/consumer", f"{len(tried)} parked events of {name} are tried again.", name=name)


async def drop_parked(visit: DashboardRequest) -> Response:
    """Forget events that were set aside."""
    name, chosen = visit.field("name"), visit.numbers("position") or None
    what = "all parked events" if chosen is None else f"{len(chosen)} parked event{'s' * (len(chosen) > 1)}"
    if not visit.sure():
        return visit.ask(
            f"Drop {what} of {name}?",
            verb="Drop",
            danger=True,
            detail="The events stay in the log; this consumer will never have handled them.",
        )
    dropped = await visit.site.log.drop_parked(name, chosen)
    return visit.go("/consumer", f"{len(dropped)} parked events of {name} were dropped.", name=name)


def _positions(positions: object) -> str:
    return ", ".join(f"{each:,}" for each in positions)  # type: ignore[attr-defined]


def _to(text: str) -> To:
    """Where to: beginning, end, a position or a moment."""
    text = text.strip()
    if text in ("beginning", "end"):
        return cast("To", text)
    if text.isdecimal() and len(text) < 19:
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise RequestError(
            400, f"{text[:60]!r} is no position.", "Give beginning, end, a number or a moment like 2026-01-31T12:00."
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


PAGES = [
    DashboardPage("GET", "/consumers", "read", consumers),
    DashboardPage("GET", "/consumer", "read", consumer),
    DashboardPage("POST", "/consumer/pause", "all", pause),
    DashboardPage("POST", "/consumer/resume", "all", resume),
    DashboardPage("POST", "/consumer/skip", "all", skip),
    DashboardPage("POST", "/consumer/reset", "all", reset),
    DashboardPage("POST", "/consumer/retry-parked", "all", retry_parked),
    DashboardPage("POST", "/consumer/drop-parked", "all", drop_parked),
]
