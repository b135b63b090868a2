"""Jobs: those that fit a filter, newest first."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from howdah.dashboard.context import PATIENCE
from howdah.dashboard.job_filter import chosen, fields, mark
from howdah.dashboard.request import DashboardPage, DashboardRequest
from howdah.job import State
from howdah.jobs.rows import shown

ON_A_PAGE = 50


async def jobs(visit: DashboardRequest) -> Response:
    """One page of them."""
    site, filter = visit.site, chosen(visit.param)
    page, reading = await asyncio.gather(
        site.admin.list(filter, before=visit.number("before"), limit=ON_A_PAGE, patience=PATIENCE), site.reading()
    )
    return visit.page(
        "jobs.html",
        jobs=[shown(row, site.redact) for row in page],
        looked=page.looked,
        cut=page.cut,
        filter=filter,
        fields=fields(filter),
        mark=mark,
        next=page.next,
        first=visit.number("before") is None,
        live=visit.number("before") is None and filter.text is None,
        states=list(State),
        counts={"queued": reading.totals.queued + reading.totals.scheduled, "running": reading.totals.running},
        queues=[queue.name for queue in reading.queues if not queue.table],
        kinds=sorted(site.app.tasks),
    )


PAGES = [DashboardPage("GET", "/jobs", "read", jobs)]
