"""Queues: what waits in each, and since when; pause and resume."""

from __future__ import annotations

from starlette.responses import Response

from howdah.dashboard.request import DashboardPage, DashboardRequest


async def queues(visit: DashboardRequest) -> Response:
    """Every queue."""
    return visit.page("queues.html", queues=await visit.site.admin.queues())


async def pause(visit: DashboardRequest) -> Response:
    """Stop claiming from a queue."""
    queue = visit.field("queue")
    if not visit.sure():
        return visit.ask(
            f"Pause queue {queue}?",
            verb="Pause",
            detail="No node takes jobs from it until it is resumed. Running jobs continue.",
        )
    await visit.site.admin.pause(queue, visit.visitor.name)
    return visit.go("/queues", f"Queue {queue} is paused.")


async def resume(visit: DashboardRequest) -> Response:
    """Claim from a queue again."""
    queue = visit.field("queue")
    if not visit.sure():
        return visit.ask(f"Resume queue {queue}?", verb="Resume", detail="Nodes take jobs from it again, at once.")
    was = await visit.site.admin.resume(queue)
    return visit.go("/queues", f"Queue {queue} is resumed." if was else f"Queue {queue} was not paused.")


PAGES = [
    DashboardPage("GET", "/queues", "read", queues),
    DashboardPage("POST", "/queues/pause", "all", pause),
    DashboardPage("POST", "/queues/resume", "all", resume),
]
