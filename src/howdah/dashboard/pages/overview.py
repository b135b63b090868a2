"""Overview: how it goes, at a glance."""

from __future__ import annotations

from starlette.responses import Response

from howdah.dashboard.visit import Page, Visit


async def overview(visit: Visit) -> Response:
    """The first page."""
    return visit.page("overview.html", queues=await visit.site.admin.queues(), nodes=await visit.site.admin.nodes())


PAGES = [Page("GET", "/", "read", overview)]
