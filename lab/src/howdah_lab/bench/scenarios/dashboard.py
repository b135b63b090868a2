"""Response times of the dashboard after millions of jobs, served by a real `howdah serve`, one request at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import NamedTuple

import httpx2 as httpx

from howdah.dashboard.context import PAGE_TIMEOUT, SNAPSHOT_TTL
from howdah.dashboard.pages import PAGES
from howdah.dashboard.pages.health import CACHE_TTL
from howdah_lab.bench.bench_schema import CheckFailed
from howdah_lab.bench.control_plane_process import ControlPlane
from howdah_lab.bench.figure import Figure, percentile
from howdah_lab.bench.job_history import JobHistory, fill
from howdah_lab.bench.scenario import Plan

REQUESTS = 4
"""Of every page in a round."""
LIMIT = 200.0
"""Milliseconds a page may take."""
SEARCH_LIMIT = 1000 * PAGE_TIMEOUT + LIMIT
"""Milliseconds a search through all jobs may take, which returns partial results."""
APP = "howdah_lab.bench.dashboard_app:app"
STREAM = "/live"
"""It never ends."""
STALE = {"/": SNAPSHOT_TTL, "/jobs": SNAPSHOT_TTL, "/health": CACHE_TTL}
"""Cache lifetime of a page in seconds: it is requested again only after that."""
LONG = 1.0
"""Pages with a longer cache lifetime, and searches, are requested once in a round."""


class PageAddress(NamedTuple):
    """An address that is asked for."""

    path: str
    limit: float = LIMIT

    @property
    def stale(self) -> float:
        """Seconds after which it is worth asking again."""
        return STALE.get(self.path, 0.0)

    def requests(self, rounds: int) -> int:
        """Number of requests in a round."""
        return rounds if self.stale > LONG or self.limit > LIMIT else rounds * REQUESTS


def addresses(history: JobHistory) -> Iterator[PageAddress]:
    """Return every page of the dashboard; those with parameters with some of every kind."""
    asked = {
        "/jobs": [
            "/jobs",
            *(f"/jobs?state={state}" for state in ("queued", "running", "done", "failed", "cancelled")),
            "/jobs?queue=queue+7&kind=kind+7",
            "/jobs?key=key+100",
            f"/jobs?before={history.finished // 2}",
        ],
        "/jobs/{id:int}": [
            f"/jobs/{id}" for id in (history.finished // 2, history.failed, history.queued, history.running)
        ],
        "/failures": ["/failures", "/failures?since=all"],
        "/nodes/{id:int}": ["/nodes/1"],
        "/table": ["/table?name=rows", "/table?name=rows&state=failed"],
        "/table/row": ["/table/row?name=rows&id=50"],
        "/consumer": ["/consumer?name=consumer+1"],
        "/log": ["/log", "/log?types=Nothing", "/log?stream=Order-7"],
        "/log/{position:int}": ["/log/50000"],
        "/enqueue": ["/enqueue", "/enqueue?kind=nothing"],
    }
    for page in PAGES:
        if page.method == "GET" and page.path != STREAM:
            if "{" in page.path and page.path not in asked:
                raise CheckFailed(f"no parameters are known for {page.path}")
            for path in asked.get(page.path, [page.path]):
                yield PageAddress(path)
    yield PageAddress("/jobs?text=nowhere+to+be+found", SEARCH_LIMIT)
    yield PageAddress(f"/jobs?text=user{history.finished // 2}%40", SEARCH_LIMIT)


async def dashboard(plan: Plan) -> list[Figure]:
    """The median and p95 of every page, and how many take too long."""
    history = await fill(plan)
    plan.tick()
    figures, slow = [], 0
    async with (
        ControlPlane(plan.schema.database, app=APP, scopes=["admin"]) as control,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{control.port}", timeout=60) as client,
    ):
        await _sign_in(client, control.token)
        for page in addresses(history):
            took = await _ask(client, page, plan.rounds)
            late = percentile(took, 95) > page.limit
            slow += late
            above = f", above {page.limit:,.0f} ms" if late else ""
            figures += [Figure(f"{page.path}, p{rank}{above}", "ms", [percentile(took, rank)]) for rank in (50, 95)]
    return [*figures, Figure(f"p95 above {LIMIT:g} ms", "pages", [float(slow)])]


async def _sign_in(client: httpx.AsyncClient, token: str) -> None:
    answer = await client.post(
        "/dashboard/login", data={"secret": token}, headers={"Origin": str(client.base_url).rstrip("/")}
    )
    if answer.status_code != 303:
        raise CheckFailed(f"sign-in failed: HTTP {answer.status_code}")


async def _ask(client: httpx.AsyncClient, page: PageAddress, rounds: int) -> list[float]:
    """Return the response times in seconds, without the first."""
    took = []
    for _ in range(1 + page.requests(rounds)):
        await asyncio.sleep(1.1 * page.stale)
        began = time.perf_counter()
        answer = await client.get(f"/dashboard{page.path}")
        took.append(time.perf_counter() - began)
        if answer.status_code != 200:
            raise CheckFailed(f"{page.path} answered {answer.status_code}")
    return took[1:]
