"""Every page of the dashboard."""

from howdah.dashboard.pages import actions as acts
from howdah.dashboard.pages import (
    audit,
    consumers,
    enqueue,
    failures,
    health,
    job,
    jobs,
    live,
    log,
    nodes,
    overview,
    queues,
    schedules,
    tables,
)
from howdah.dashboard.request import DashboardPage

PAGES: list[DashboardPage] = [
    *overview.PAGES,
    *jobs.PAGES,
    *job.PAGES,
    *acts.PAGES,
    *enqueue.PAGES,
    *failures.PAGES,
    *queues.PAGES,
    *schedules.PAGES,
    *tables.PAGES,
    *consumers.PAGES,
    *log.PAGES,
    *nodes.PAGES,
    *health.PAGES,
    *audit.PAGES,
    *live.PAGES,
]
