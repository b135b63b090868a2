"""The event log by position or by stream, and its consumers: positions, halts, parked events, and actions."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import msgspec
from starlette.responses import Response

from howdah.dashboard.protection import RequestError
from howdah.dashboard.request import DashboardPage, DashboardRequest
from howdah.events.admin import To
from howdah.events.event import Event
from howdah.redact import Redact, readable_json

ON_A_PAGE = 50
PARKED_ON_A_PAGE = 50
AFTER_PARKED = "Later events of their streams may have been handled since."
LONGEST_TEASER = 160


async def log(visit: DashboardRequest) -> Response:
    """The newest events first; of one stream, of some types, or before a position."""
    stream, types = visit.param("stream").strip(), visit.param("types").split()
    before, only = visit.number("before"), visit.param("only").split()
    reader = visit.context.reader
    if stream:
        events = await reader.stream(
            stream, after=0, before=before, types=types or None, backwards=True, limit=ON_A_PAGE + 1
        )
    else:
        events = await reader.read(
            after=0, before=before, only=only or None, types=types or None, backwards=True, limit=ON_A_PAGE + 1
        )
    shown, more = events[:ON_A_PAGE], len(events) > ON_A_PAGE
    return visit.page(
        "log.html",
        events=shown,
        stream=stream,
        types=" ".join(types),
        only=" ".join(only),
        frontier=await reader.frontier(),
        next=_next(shown[-1], stream) if more else None,
        before=before,
        teaser=partial(_teaser, visit.context.redact),
    )


async def event(visit: DashboardRequest) -> Response:
    """One event."""
    position = visit.request.path_params["position"]
    found = await visit.context.reader.read(
        after=position - 1, before=position + 1, only=None, types=None, backwards=False, limit=1
    )
    one, redact = found[0] if found else None, visit.context.redact
    return visit.page(
        "event.html",
        position=position,
        event=one,
        data=one and redact(_plain(one.data_json), kind=one.type, part="data"),
        meta=one and redact(_plain(one.meta_json), kind=one.type, part="meta"),
    )


def _plain(data: bytes | None) -> Any:
    return None if data is None else readable_json(data)


def _teaser(redact: Redact, event: Event) -> str:
    """Return the beginning of an event's data, in one line."""
    text = msgspec.json.encode(redact(_plain(event.data_json), kind=event.type, part="data")).decode()
    return text if len(text) <= LONGEST_TEASER else f"{text[:LONGEST_TEASER]}…"


def _next(event: Event, stream: str) -> int:
    return event.version if stream else event.position


async def consumers(visit: DashboardRequest) -> Response:
    """Every consumer by partition, and the status of the log."""
    log = visit.context.log
    return visit.page(
        "consumers.html", consumers=await log.consumers(), status=await log.status(), redact=visit.context.redact
    )


async def consumer(visit: DashboardRequest) -> Response:
    """One consumer, with its parked events."""
    name, log = visit.param("name"), visit.context.log
    after = visit.number("after", 0) or 0
    return visit.page(
        "consumer.html",
        name=name,
        parts=await log.consumers(name),
        status=await log.status(),
        gates=await visit.context.why.consumer(name),
        parked=await log.parked(name, after=after, limit=PARKED_ON_A_PAGE),
        more=PARKED_ON_A_PAGE,
        redact=visit.context.redact,
    )


async def pause(visit: DashboardRequest) -> Response:
    """Pause a consumer."""
    name = visit.field("name")
    if not visit.confirmed():
        return visit.confirm(
            f"Pause consumer {name}?",
            verb="Pause",
            detail="It finishes the current batch; then no node runs it until it is resumed.",
        )
    await visit.context.log.pause(name, visit.visitor.name)
    return visit.redirect("/consumer", f"Consumer {name} is paused.", name=name)


async def resume(visit: DashboardRequest) -> Response:
    """Resume a consumer."""
    name = visit.field("name")
    if not visit.confirmed():
        return visit.confirm(
            f"Resume consumer {name}?",
            verb="Resume",
            detail="It resumes at its position. If it halted on an event, that event is tried again.",
        )
    was = await visit.context.log.resume(name)
    return visit.redirect("/consumer", f"Consumer {name} {'resumed' if was else 'was not paused'}.", name=name)


async def skip(visit: DashboardRequest) -> Response:
    """Skip the event that a consumer failed on."""
    name = visit.field("name")
    if not visit.confirmed():
        return visit.confirm(
            f"Skip the event consumer {name} failed on?",
            verb="Skip",
            danger=True,
            detail="Its read model will lack what the event says, until it is reset and consumes it again.",
        )
    left = await visit.context.log.skip(name, events=visit.numbers("event") or None)
    return visit.redirect("/consumer", f"Consumer {name} skipped {_positions(left)}.", name=name)


async def reset(visit: DashboardRequest) -> Response:
    """Move a consumer to another position."""
    name, to = visit.field("name"), _target(visit.field("to"))
    if not visit.confirmed():
        where = "the " + to if isinstance(to, str) else str(to)
        return visit.confirm(
            f"Reset consumer {name} to {where}?",
            verb="Reset",
            danger=True,
            detail="It handles again, or leaves out, all events between here and there.",
        )
    position = await visit.context.log.reset(name, to)
    return visit.redirect("/consumer", f"Consumer {name} is at position {position:,} now.", name=name)


async def retry_parked(visit: DashboardRequest) -> Response:
    """Retry parked events."""
    name, chosen = visit.field("name"), visit.numbers("position") or None
    what = "all parked events" if chosen is None else f"{len(chosen)} parked event{'s' * (len(chosen) > 1)}"
    if not visit.confirmed():
        return visit.confirm(
            f"Retry {what} of {name}?",
            verb="Retry",
            detail=AFTER_PARKED,
        )
    tried = await visit.context.log.retry_parked(name, chosen)
    return visit.redirect("/consumer", f"{len(tried)} parked events of {name} are retried.", name=name)


async def drop_parked(visit: DashboardRequest) -> Response:
    """Drop parked events."""
    name, chosen = visit.field("name"), visit.numbers("position") or None
    what = "all parked events" if chosen is None else f"{len(chosen)} parked event{'s' * (len(chosen) > 1)}"
    if not visit.confirmed():
        return visit.confirm(
            f"Drop {what} of {name}?",
            verb="Drop",
            danger=True,
            detail="The events stay in the log; this consumer will never have handled them.",
        )
    dropped = await visit.context.log.drop_parked(name, chosen)
    return visit.redirect("/consumer", f"{len(dropped)} parked events of {name} were dropped.", name=name)


def _positions(positions: object) -> str:
    return ", ".join(f"{each:,}" for each in positions)  # type: ignore[attr-defined]


def _target(text: str) -> To:
    """Parse a target: beginning, end, a position or a time."""
    text = text.strip()
    if text in ("beginning", "end"):
        return cast("To", text)
    if text.isdecimal() and len(text) < 19:
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise RequestError(
            400, f"{text[:60]!r} is not a position.", "Give beginning, end, a number or a time like 2026-01-31T12:00."
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


PAGES = [
    DashboardPage("GET", "/log", "read", log),
    DashboardPage("GET", "/log/{position:int}", "read", event),
    DashboardPage("GET", "/consumers", "read", consumers),
    DashboardPage("GET", "/consumer", "read", consumer),
    DashboardPage("POST", "/consumer/pause", "all", pause),
    DashboardPage("POST", "/consumer/resume", "all", resume),
    DashboardPage("POST", "/consumer/skip", "all", skip),
    DashboardPage("POST", "/consumer/reset", "all", reset),
    DashboardPage("POST", "/consumer/retry-parked", "all", retry_parked),
    DashboardPage("POST", "/consumer/drop-parked", "all", drop_parked),
]
