"""Live updates as an event stream."""

from __future__ import annotations

from starlette.responses import Response, StreamingResponse

from howdah.dashboard.request import DashboardPage, DashboardRequest


async def live(visit: DashboardRequest) -> Response:
    """A stream of the topics that changed."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(visit.site.hub.join(), media_type="text/event-stream", headers=headers)


PAGES = [DashboardPage("GET", "/live", "read", live)]
