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
"""Finished jobs whose times are looked at."""


class Worry(NamedTuple):
    """A problem that needs attention."""

    kind: str
    """bad or warn."""
    text: str
    to: str
    """Where."""


async def overview(visit: DashboardRequest) -> Response:
    """The first page."""
    site = visit.site
    reading, [speed], failures = await asyncio.gather(
        site.reading(), site.fetch("speed", SAMPLE), site.fetch("last_failures", FAILURES)
    )
    return visit.page(
        "overview.html",
        reading=reading,
        speed=speed,
        pulse=site.beat(reading),
        worries=worries(visit, reading),
        failures=failures,
        running=reading.running[:RUNNING],
        oldest=max((queue.oldest_age or 0.0 for queue in reading.queues if not queue.paused), default=0.0),
        failed_hour=sum(minute.failed for minute in reading.minutes),
        done_hour=sum(minute.done for minute in reading.minutes),
    )


def worries(visit: DashboardRequest, reading: Snapshot) -> list[Worry]:
    """The worst first."""
    found = [
        Worry("bad", f"Consumer {each.name} is halted", visit.url("/consumer", name=each.name))
        for each in reading.consumers
        if each.state == "halted"
    ]
    if not reading.nodes and reading.totals.queued:
        found.append(Worry("bad", f"No node is live; jobs that wait: {reading.totals.queued:,}", visit.url("/nodes")))
    for queue in reading.queues:
        if queue.paused and (queue.queued or 0) > 0:
            text = f"Queue {queue.name} is paused; {queue.queued:,} jobs wait"
            found.append(Worry("warn", text, visit.url("/queues")))
        elif (queue.oldest_age or 0) > LATE:
            text = f"Queue {queue.name} is late: the first in line has waited for {queue.oldest_age:,.0f} s"
            found.append(Worry("warn", text, visit.url("/jobs", queue=queue.name, state="queued")))
    found += [
        Worry("warn", f"Consumer {each.name} is {each.state}", visit.url("/consumer", name=each.name))
        for each in reading.consumers
        if each.state == "unassigned"
    ]
    found += [
        Worry("warn", f"Node {each.name} hears no wake-ups and polls", visit.url(f"/nodes/{each.id}"))
        for each in reading.nodes
        if each.deaf
    ]
    if reading.late:
        found.append(Worry("warn", f"Could not be read in time: {', '.join(reading.late)}", visit.url("/health")))
    return found


PAGES = [DashboardPage("GET", "/", "read", overview)]
