"""Audit: who did what, newest first."""

from __future__ import annotations

from starlette.responses import Response

from howdah.dashboard.request import DashboardPage, DashboardRequest

ON_A_PAGE = 50
FIELDS = ("who", "via", "verb", "thing", "id")


async def audit(visit: DashboardRequest) -> Response:
    """One page of it."""
    asked = {name: visit.param(name).strip() for name in FIELDS}
    scope = {name: value or None for name, value in asked.items()}
    entries = await visit.context.admin.audit(**scope, before=visit.number("before"), limit=ON_A_PAGE)  # type: ignore[arg-type]
    full = len(entries) == ON_A_PAGE
    return visit.page("audit.html", entries=entries, asked=asked, next=entries[-1].id if full else None)


PAGES = [DashboardPage("GET", "/audit", "read", audit)]
