"""Every page of the dashboard."""

from howdah.dashboard.pages import consumers, health, live, log, nodes, overview, queues, schedules
from howdah.dashboard.visit import Page

PAGES: list[Page] = [
    *overview.PAGES,
    *queues.PAGES,
    *schedules.PAGES,
    *consumers.PAGES,
    *log.PAGES,
    *nodes.PAGES,
    *health.PAGES,
    *live.PAGES,
]
