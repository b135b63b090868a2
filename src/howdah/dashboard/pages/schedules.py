"""Schedules: what comes next, and what came of the last time; pause and resume."""

from __future__ import annotations

from starlette.responses import Response

from howdah.dashboard.request import DashboardPage, DashboardRequest


async def schedules(visit: DashboardRequest) -> Response:
    """Every schedule, the next one first."""
    return visit.page("schedules.html", schedules=await visit.site.admin.schedules())


async def pause(visit: DashboardRequest) -> Response:
    """Stop a schedule."""
    name = visit.field("name")
    if not visit.sure():
        return visit.ask(f"Pause schedule {name}?", verb="Pause", detail="Nothing is enqueued until it is resumed.")
    await visit.site.admin.pause_schedule(name)
    return visit.go("/schedules", f"Schedule {name} is paused.")


async def resume(visit: DashboardRequest) -> Response:
    """Let a schedule go on."""
    name = visit.field("name")
    if not visit.sure():
        return visit.ask(
            f"Resume schedule {name}?", verb="Resume", detail="It continues from now; missed slots are not made up."
        )
    await visit.site.admin.pause_schedule(name, False)
    return visit.go("/schedules", f"Schedule {name} resumed.")


PAGES = [
    DashboardPage("GET", "/schedules", "read", schedules),
    DashboardPage("POST", "/schedules/pause", "all", pause),
    DashboardPage("POST", "/schedules/resume", "all", resume),
]
