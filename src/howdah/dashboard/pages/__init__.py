"""Every page of the dashboard."""

from howdah.dashboard.pages import (
    acts,
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
from howdah.dashboard.visit import Page

PAGES: list[Page] = [
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
