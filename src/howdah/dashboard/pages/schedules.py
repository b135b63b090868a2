"""Schedules: what comes next, and what came of the last time; pause and resume."""

from __future__ import annotations

from starlette.responses import Response

from howdah.dashboard.visit import Page, Visit


async def schedules(visit: Visit) -> Response:
    """Every schedule, the next one first."""
    return visit.page("schedules.html", schedules=await visit.site.admin.schedules())


async def pause(visit: Visit) -> Response:
    """Stop a schedule."""
    name = visit.field("name")
    if not visit.sure():
        return visit.ask(f"Pause schedule {name}?", verb="Pause", detail="Nothing is enqueued until it is resumed.")
    await visit.site.admin.pause_schedule(name)
    return visit.go("/schedules", f"Schedule {name} is paused.")


async def resume(visit: Visit) -> Response:
    """Let a schedule go on."""
    name = visit.field("name")
    if not visit.sure():
        return visit.ask(
            f"Resume schedule {name}?", verb="Resume", detail="It goes on from now; what was missed stays so."
        )
    await visit.site.admin.pause_schedule(name, False)
    return visit.go("/schedules", f"Schedule {name} goes on.")


PAGES = [
    Page("GET", "/schedules", "read", schedules),
    Page("POST", "/schedules/pause", "all", pause),
    Page("POST", "/schedules/resume", "all", resume),
]
