"""Every page of the dashboard, except the login page."""

from howdah.dashboard.pages import actions, audit, enqueue, events, health, jobs, live, nodes, overview, queues, tables
from howdah.dashboard.request import DashboardPage

PAGES: list[DashboardPage] = [
    *overview.PAGES,
    *jobs.PAGES,
    *actions.PAGES,
    *enqueue.PAGES,
    *queues.PAGES,
    *tables.PAGES,
    *events.PAGES,
    *nodes.PAGES,
    *health.PAGES,
    *audit.PAGES,
    *live.PAGES,
]
