"""Every page of the dashboard."""

from howdah.dashboard.pages import consumers, live, log, overview, queues
from howdah.dashboard.visit import Page

PAGES: list[Page] = [
    *overview.PAGES,
    *queues.PAGES,
    *consumers.PAGES,
    *log.PAGES,
    *live.PAGES,
]
