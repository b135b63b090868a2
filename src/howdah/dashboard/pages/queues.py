"""Queues: what waits in each, and since when; pause and resume."""

from __future__ import annotations

from starlette.responses import Response

from howdah.dashboard.visit import Page, Visit


async def queues(visit: Visit) -> Response:
    """Every queue."""
    return visit.page("queues.html", queues=await visit.site.admin.queues())


async def pause(visit: Visit) -> Response:
    """Stop claiming from a queue."""
    queue = visit.field("queue")
    if not visit.sure():
        return visit.ask(
            f"Pause queue {queue}?",
            verb="Pause",
            detail="No node takes jobs from it until it is resumed. What runs goes on.",
        )
    await visit.site.admin.pause(queue, visit.visitor.name)
    return visit.go("/queues", f"Queue {queue} is paused.")


async def resume(visit: Visit) -> Response:
    """Claim from a queue again."""
    queue = visit.field("queue")
    if not visit.sure():
        return visit.ask(f"Resume queue {queue}?", verb="Resume", detail="Nodes take jobs from it again, at once.")
    was = await visit.site.admin.resume(queue)
    return visit.go("/queues", f"Queue {queue} is resumed." if was else f"Queue {queue} was not paused.")


PAGES = [
    Page("GET", "/queues", "read", queues),
    Page("POST", "/queues/pause", "all", pause),
    Page("POST", "/queues/resume", "all", resume),
]
