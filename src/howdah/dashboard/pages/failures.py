"""Failures, grouped by what their errors have in common."""

from __future__ import annotations

from starlette.responses import Response

from howdah.dashboard.request import DashboardPage, DashboardRequest

LOOKED_AT, MOST = 2000, 10_000
"""Failures that are looked at, at first and when asked for more: each costs the server some 50 µs."""
SPANS = {"hour": 3600.0, "day": 86400.0, "week": 7 * 86400.0, "all": None}


async def failures(visit: DashboardRequest) -> Response:
    """The largest group first."""
    since = visit.param("since", "day")
    since = since if since in SPANS else "day"
    queue, kind = visit.param("queue") or None, visit.param("kind") or None
    more = visit.param("look") == "more"
    newest = MOST if more else LOOKED_AT
    found = await visit.site.admin.failures(queue=queue, kind=kind, seconds=SPANS[since], newest=newest)
    redact = visit.site.redact
    return visit.page(
        "failures.html",
        found=found,
        messages={each.example: redact.text(each.message, kind=each.kind, part="error") for each in found.groups},
        since=since,
        spans=SPANS,
        queue=queue or "",
        kind=kind or "",
        more=more,
        most=MOST,
    )


PAGES = [DashboardPage("GET", "/failures", "read", failures)]
