"""The log browser: events by position, or one stream by version."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from starlette.responses import Response

from howdah.dashboard.request import DashboardPage, DashboardRequest
from howdah.events.event import Event
from howdah.redact import Redact

ON_A_PAGE = 50
LONGEST_TEASER = 160


async def log(visit: DashboardRequest) -> Response:
    """The newest events first; of one stream, of some types, or before a position."""
    stream, types = visit.param("stream").strip(), visit.param("types").split()
    before, only = visit.number("before"), visit.param("only").split()
    reader = visit.site.reader
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
        next=_place(shown[-1], stream) if more else None,
        before=before,
        teaser=partial(_teaser, visit.site.redact),
    )


async def event(visit: DashboardRequest) -> Response:
    """One event."""
    position = visit.request.path_params["position"]
    found = await visit.site.reader.read(
        after=position - 1, before=position + 1, only=None, types=None, backwards=False, limit=1
    )
    one, redact = found[0] if found else None, visit.site.redact
    return visit.page(
        "event.html",
        position=position,
        event=one,
        data=one and redact(_plain(one.data_json), kind=one.type, part="data"),
        meta=one and redact(_plain(one.meta_json), kind=one.type, part="meta"),
    )


def _plain(data: bytes | None) -> Any:
    return None if data is None else msgspec.json.decode(data)


def _teaser(redact: Redact, event: Event) -> str:
    """The beginning of what happened, in one line."""
    text = msgspec.json.encode(redact(_plain(event.data_json), kind=event.type, part="data")).decode()
    return text if len(text) <= LONGEST_TEASER else f"{text[:LONGEST_TEASER]}…"


def _place(event: Event, stream: str) -> int:
    return event.version if stream else event.position


PAGES = [
    DashboardPage("GET", "/log", "read", log),
    DashboardPage("GET", "/log/{position:int}", "read", event),
]
