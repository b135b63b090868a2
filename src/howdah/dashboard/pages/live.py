"""What changes, as it does."""

from __future__ import annotations

from starlette.responses import Response, StreamingResponse

from howdah.dashboard.visit import Page, Visit


async def live(visit: Visit) -> Response:
    """A stream of the topics that changed."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(visit.site.hub.join(), media_type="text/event-stream", headers=headers)


PAGES = [Page("GET", "/live", "read", live)]
