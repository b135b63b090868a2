"""The overview page: waiting jobs, rates, and problems that need attention."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from starlette.responses import Response

from howdah.dashboard.request import DashboardPage, DashboardRequest
from howdah.observe.snapshot import Snapshot

LATE = 60.0
"""Seconds of waiting in a queue after which it is highlighted."""
FAILURES = 6
RUNNING = 8
SAMPLE = 1000
"""Finished jobs from which the speed is computed."""


class Problem(NamedTuple):
    """A problem that needs attention."""

    kind: str
    """bad or warn."""
    text: str
    to: str
    """Where."""


async def overview(visit: DashboardRequest) -> Response:
    """The first page."""
    context = visit.context
    snapshot, [speed], failures = await asyncio.gather(
        context.snapshot(), context.fetch("speed", SAMPLE), context.fetch("last_failures", FAILURES)
    )
    return visit.page(
        "overview.html",
        snapshot=snapshot,
        speed=speed,
        pulse=context.chart_values(snapshot),
        problems=problems(visit, snapshot),
        failures=[{**each, "error": context.redact.text(each["error"], kind=each["kind"])} for each in failures],
        running=snapshot.running[:RUNNING],
        oldest=max((queue.oldest_age or 0.0 for queue in snapshot.queues if not queue.paused), default=0.0),
        failed_hour=sum(minute.failed for minute in snapshot.minutes),
        done_hour=sum(minute.done for minute in snapshot.minutes),
    )


def problems(visit: DashboardRequest, snapshot: Snapshot) -> list[Problem]:
    """The worst first."""
    found = [
        Problem("bad", f"Consumer {each.name} is halted", visit.url("/consumer", name=each.name))
        for each in snapshot.consumers
        if each.state == "halted"
    ]
    if not snapshot.nodes and snapshot.totals.queued:
        found.append(Problem("bad", f"No node is live; queued jobs: {snapshot.totals.queued:,}", visit.url("/nodes")))
    for queue in snapshot.queues:
        if queue.paused and (queue.queued or 0) > 0:
            text = f"Queue {queue.name} is paused; queued jobs: {queue.queued:,}"
            found.append(Problem("warn", text, visit.url("/queues")))
        elif (queue.oldest_age or 0) > LATE:
            text = f"Queue {queue.name} is late: its first job has waited for {queue.oldest_age:,.0f} s"
            found.append(Problem("warn", text, visit.url("/jobs", queue=queue.name, state="queued")))
    found += [
        Problem("warn", f"Consumer {each.name} is {each.state}", visit.url("/consumer", name=each.name))
        for each in snapshot.consumers
        if each.state == "unassigned"
    ]
    found += [
        Problem("warn", f"Node {each.name} receives no wake-ups and polls", visit.url(f"/nodes/{each.id}"))
        for each in snapshot.nodes
        if each.deaf
    ]
    if snapshot.late:
        found.append(Problem("warn", f"Could not be read in time: {', '.join(snapshot.late)}", visit.url("/health")))
    return found


PAGES = [DashboardPage("GET", "/", "read", overview)]
