"""Every page of the dashboard."""

from howdah.dashboard.pages import live, overview, queues
from howdah.dashboard.visit import Page

PAGES: list[Page] = [
    *overview.PAGES,
    *queues.PAGES,
    *live.PAGES,
]
