"""Names, arguments, errors and logs that would like to be scripts: seen as they are, and nothing happens."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import expect

from howdah import NewEvent, WorkerOptions, job_log, progress
from kit.node import ended

pytestmark = pytest.mark.anyio
CORPUS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "'-alert(1)-'",
    "javascript:alert(1)",
    "</textarea><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "<div hx-get='/dashboard/jobs' hx-trigger='load'>x</div>",
    "<a hx-post='/dashboard/queues/pause' hx-trigger='load'>",
    "<iframe srcdoc='<script>parent.alert(1)</script>'>",
    "{{7*7}}${7*7}<%= 7*7 %>",
    "<style>*{display:none}</style>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<base href=//evil.example>",
    "<form action=//evil.example><button>x</button></form>",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "‮evil‬",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "%3Cscript%3Ealert(1)%3C/script%3E",
]
EVIL = """<form method="post" action="SERVED/queues/resume"><input name="queue" value="mail">
<input name="sure" value="yes"><button>Win a prize</button></form>"""
PATHS = ["/", "/jobs", "/jobs?state=failed", "/failures", "/queues", "/nodes", "/schedules", "/consumers", "/log"]


async def test_every_field_is_only_text(app, served, tab, conn):
    corpus = iter(CORPUS * 10)
    all_of_it = "\n".join(CORPUS)

    @app.task(name="<img src=x onerror=alert(2)>", queue='"><script>alert(3)</script>', max_attempts=1)
    async def hostile(text: str) -> None:
        job_log(text)
        progress(0.5, next(corpus))
        raise ValueError(text)

    @app.consumer("<b onmouseover=alert(4)>view", max_failures=1)
    async def view(event) -> None:
        raise ValueError(all_of_it)

    app.schedule("<script>alert(5)</script>", hostile.job("x"), cron="0 3 * * *")
    running = asyncio.create_task(
        app.work(WorkerOptions(slots=4, heartbeat=0.5, lease=10, rebalance=0.2, dispatch=0.1))
    )
    jobs = await app.enqueue_many(
        hostile.using(key=f"{text}-{n}" if text.isprintable() else None, meta={text: text}).job(text)
        for n, text in enumerate([*CORPUS, all_of_it])
    )
    await app.log.append(
        "Order-<script>alert(6)</script>", NewEvent(type="<img src=x onerror=alert(7)>", data={"x": all_of_it})
    )
    for job in jobs:
        await ended(conn, job.id, 60)
    await app.admin.pause("<svg onload=alert(8)>", "<script>alert(9)</script>")
    page = tab.page
    for path in [*PATHS, *(f"/jobs/{job.id}" for job in jobs[::5]), f"/jobs/{jobs[-1].id}", "/log/1", "/audit"]:
        await page.goto(f"{served}{path}")
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert (
            await page.evaluate(
                "document.querySelectorAll('#main script, #main iframe, #main style, #main base').length"
            )
            == 0
        )
        assert (
            await page.evaluate(
                "document.querySelectorAll('#main [onerror], #main [onload], #main [onmouseover]').length"
            )
            == 0
        )
        assert await page.evaluate("location.host") in served
    await page.goto(f"{served}/consumers")
    await page.get_by_role("link", name=">view").click()
    await expect(page.locator("#parts")).to_contain_text("<script>alert(1)</script>")
    await page.goto(f"{served}/jobs?text=%3Cscript%3Ealert(1)%3C/script%3E&queue=%22%3E%3Cscript%3E")
    await expect(page.get_by_label("Text in arguments or error")).to_have_value("<script>alert(1)</script>")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_another_site_cannot_make_a_browser_act(app, served, browser):
    """A page of another origin posts a form; the browser sends it, and it is refused."""
    await app.admin.pause("mail")
    context = await browser.new_context()
    page = await context.new_page()
    other = "http://evil.example/"  # never asked: the browser is given the page right here
    await page.route(other, lambda route: route.fulfill(content_type="text/html", body=EVIL.replace("SERVED", served)))
    await page.goto(other)
    async with page.expect_navigation():
        await page.get_by_role("button").click()
    seen = await page.content()
    await context.close()
    assert "sent from another site" in seen
    assert [queue.paused for queue in await app.admin.queues()] == [True]
