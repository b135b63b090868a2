"""Health: what the doctor found, the worst first, each with what to do."""

from __future__ import annotations

from collections import Counter

from starlette.responses import Response

from howdah.dashboard.visit import Page, Visit
from howdah.upkeep.finding import Verdict


async def health(visit: Visit) -> Response:
    """Every finding."""
    found = await visit.site.examination.findings()
    counted = Counter(each.verdict for each in found)
    return visit.page("health.html", findings=found, counts={each.value: counted[each] for each in Verdict})


PAGES = [Page("GET", "/health", "read", health)]
