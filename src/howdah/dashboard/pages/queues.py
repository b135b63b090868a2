"""Queues and schedules: what waits and what comes next; pause and resume."""

from __future__ import annotations

from starlette.responses import Response

from howdah.dashboard.request import DashboardPage, DashboardRequest


async def queues(visit: DashboardRequest) -> Response:
    """Every queue."""
    return visit.page("queues.html", queues=await visit.context.admin.queues())


async def pause(visit: DashboardRequest) -> Response:
    """Stop claiming from a queue."""
    queue = visit.field("queue")
    if not visit.confirmed():
        return visit.confirm(
            f"Pause queue {queue}?",
            verb="Pause",
            detail="No node takes jobs from it until it is resumed. Running jobs continue.",
        )
    await visit.context.admin.pause(queue, visit.visitor.name)
    return visit.redirect("/queues", f"Queue {queue} is paused.")


async def resume(visit: DashboardRequest) -> Response:
    """Claim from a queue again."""
    queue = visit.field("queue")
    if not visit.confirmed():
        return visit.confirm(f"Resume queue {queue}?", verb="Resume", detail="Nodes take jobs from it again, at once.")
    was = await visit.context.admin.resume(queue)
    return visit.redirect("/queues", f"Queue {queue} is resumed." if was else f"Queue {queue} was not paused.")


async def schedules(visit: DashboardRequest) -> Response:
    """Every schedule, the next one first."""
    return visit.page("schedules.html", schedules=await visit.context.admin.schedules())


async def pause_schedule(visit: DashboardRequest) -> Response:
    """Stop a schedule."""
    name = visit.field("name")
    if not visit.confirmed():
        return visit.confirm(f"Pause schedule {name}?", verb="Pause", detail="Nothing is enqueued until it is resumed.")
    await visit.context.admin.pause_schedule(name)
    return visit.redirect("/schedules", f"Schedule {name} is paused.")


async def resume_schedule(visit: DashboardRequest) -> Response:
    """Continue a schedule."""
    name = visit.field("name")
    if not visit.confirmed():
        return visit.confirm(
            f"Resume schedule {name}?", verb="Resume", detail="It continues from now; missed slots are not made up."
        )
    await visit.context.admin.pause_schedule(name, False)
    return visit.redirect("/schedules", f"Schedule {name} resumed.")


PAGES = [
    DashboardPage("GET", "/queues", "read", queues),
    DashboardPage("POST", "/queues/pause", "all", pause),
    DashboardPage("POST", "/queues/resume", "all", resume),
    DashboardPage("GET", "/schedules", "read", schedules),
    DashboardPage("POST", "/schedules/pause", "all", pause_schedule),
    DashboardPage("POST", "/schedules/resume", "all", resume_schedule),
]
