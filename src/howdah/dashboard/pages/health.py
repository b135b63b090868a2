"""Health: what the doctor found, the worst first, each with what to do."""

from __future__ import annotations

from collections import Counter

from starlette.responses import Response

from howdah.dashboard.request import DashboardPage, DashboardRequest
from howdah.diagnose.doctor.finding import Verdict


async def health(visit: DashboardRequest) -> Response:
    """Every finding; at first, and while a new examination is made, the page fetches itself."""
    seen = await visit.site.examination.look()
    counted = Counter(each.verdict for each in seen.findings)
    return visit.page("health.html", seen=seen, counts={each.value: counted[each] for each in Verdict})


PAGES = [DashboardPage("GET", "/health", "read", health)]
