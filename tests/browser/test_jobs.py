"""The pages of jobs, with nodes that really work."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import expect

from howdah import Secret, WorkerOptions, job_log, progress
from kit.node import ended

pytestmark = pytest.mark.anyio
QUICK = WorkerOptions(slots=4, poll=0.5, heartbeat=0.3, lease=10)


@asynccontextmanager
async def working(app):
    """A node, while the block lasts."""
    running = asyncio.create_task(app.work(QUICK))
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
def send(app):
    @app.task(queue="mail", max_attempts=1)
    async def send(n: int, card: Secret[str] | None = None) -> int:
        """Send one mail."""
        if n % 2:
            raise ValueError(f"no mailbox {n}")
        return n

    return send


async def say_yes(page, verb):
    await page.get_by_role("dialog").get_by_role("button", name=verb, exact=True).click()


async def test_a_failed_job_is_looked_at_and_retried(app, served, tab, conn, send):
    page = tab.page
    async with working(app):
        job = await send.enqueue(1, Secret("4111-canary"))
        await ended(conn, job.id, 30)
        await page.goto(f"{served}/jobs")
        row = page.locator(f"#job-{job.id}")
        await expect(row).to_contain_text("failed")
        await expect(row).to_contain_text("no mailbox 1")
        await row.get_by_role("link").first.click()
        await expect(page.get_by_role("heading", level=1)).to_contain_text(f"send {job.id}")
        await expect(page.locator(".timeline")).to_contain_text("attempt 1")
        await page.get_by_text("Traceback", exact=True).click()
        await expect(page.locator(".timeline pre")).to_contain_text("ValueError")
        assert "4111-canary" not in await page.content()
        await tab.picture("job-failed")
        await page.get_by_role("button", name="Retry").click()
        await say_yes(page, "Retry")
        await expect(page.get_by_role("status").filter(has_text="queued")).to_be_visible()
        await expect(page.locator("#job")).to_contain_text("What people did to it")
    assert [(entry.verb, entry.who, entry.via) for entry in await app.admin.audit()] == [
        ("retry", "everybody", "dashboard")
    ]


async def test_why_a_job_does_not_run(app, served, tab, send):
    job = await send.enqueue(2)
    await app.admin.pause("mail", "somebody")
    page = tab.page
    await page.goto(f"{served}/jobs/{job.id}")
    why = page.locator("#why")
    await expect(why.locator("li.shut").filter(has_text="paused")).to_contain_text("somebody")
    await expect(why.locator("li.shut").filter(has_text="no node is live")).to_be_visible()
    await expect(why.locator("li").first).to_have_class("shut")
    await tab.picture("job-why")
    await page.get_by_label("Priority, or queue").fill("7")
    await page.get_by_role("button", name="Re-prioritise").click()
    await say_yes(page, "Re-prioritise")
    await expect(page.locator("#job")).to_contain_text("priority 7")
    await page.get_by_label("Priority, or queue").fill("letters")
    await page.get_by_role("button", name="Move to queue").click()
    await say_yes(page, "Move")
    await expect(page.locator("#job")).to_contain_text("letters")
    found = await app.admin.get(job.id)
    assert (found.priority, found.queue) == (7, "letters")


async def test_a_running_job_says_how_far_it_is_and_is_cancelled(app, served, tab, conn):
    go = asyncio.Event()

    @app.task(queue="slow")
    async def render(frames: int) -> None:
        progress(0.25, "frame 25")
        job_log("began <script>alert(1)</script>")
        await go.wait()
        progress(0.5, "frame 50")
        await asyncio.sleep(3600)

    page = tab.page
    async with working(app):
        job = await render.enqueue(100)
        await page.goto(f"{served}/jobs/{job.id}")
        await expect(page.locator("#job")).to_contain_text("25 %")
        await expect(page.locator(".lines")).to_contain_text("began <script>")
        await tab.picture("job-running")
        go.set()
        await expect(page.locator("#job")).to_contain_text("50 %")
        await page.get_by_role("button", name="Cancel").click()
        await say_yes(page, "Cancel")
        assert (await ended(conn, job.id, 30))["state"] == "cancelled"
        await expect(page.locator("#job .badge").first).to_have_text("cancelled")


async def test_many_are_chosen(app, served, tab, send):
    await app.enqueue_many(send.job(n) for n in range(4))
    page = tab.page
    await page.goto(f"{served}/jobs?state=queued")
    await expect(page.locator("#jobs tbody tr")).to_have_count(4)
    await page.get_by_label("Choose job 1", exact=True).check()
    await page.get_by_label("Choose job 3", exact=True).check()
    await expect(page.get_by_text("2 chosen")).to_be_visible()
    await tab.picture("jobs-chosen")
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("dialog")).to_contain_text("Cancel 2 jobs?")
    await say_yes(page, "Cancel")
    await expect(page.get_by_role("status").filter(has_text="2 of 2 jobs cancelled")).to_be_visible()
    await expect(page.locator("#jobs tbody tr")).to_have_count(2)
    assert sorted(row.id for row in await app.admin.list("cancelled")) == [1, 3]


async def test_all_that_fit_are_counted_first_and_done_with_progress(app, served, tab, send):
    await app.enqueue_many(send.job(n) for n in range(2500))
    await app.enqueue_many([send.using(queue="other").job(1)])
    page = tab.page
    await page.goto(f"{served}/jobs?state=queued&queue=mail")
    await page.get_by_label("Act", exact=True).select_option("cancel")
    await page.get_by_role("button", name="Count them").click()
    await expect(page.get_by_role("dialog")).to_contain_text("Cancel 2,500 queued jobs with queue mail?")
    await say_yes(page, "Cancel")
    await expect(page.locator(".steps li").last).to_contain_text("2,500 cancelled. Done.")
    await tab.picture("bulk")
    assert (await app.admin.count("queued")).jobs == 1
    assert [entry.count for entry in await app.admin.audit()] == [500, 1000, 1000]


async def test_pages_filters_and_search(app, served, tab):
    @app.task(queue="mail")
    async def send(n: int) -> None:
        """Without a secret: arguments with one are not searched."""

    await app.enqueue_many(send.job(n) for n in range(120))
    await app.enqueue_many([send.using(queue="other").job(777)])
    page = tab.page
    await page.goto(f"{served}/jobs")
    await expect(page.locator("#jobs tbody tr")).to_have_count(50)
    await tab.picture("jobs")
    await page.get_by_role("link", name="Older").click()
    await page.get_by_role("link", name="Older").click()
    await expect(page.locator("#jobs tbody tr")).to_have_count(21)
    await page.get_by_role("link", name="Newest").click()
    await expect(page.get_by_role("link", name="Newest")).to_be_hidden()
    await page.keyboard.press("/")
    await page.keyboard.type("777")
    await page.keyboard.press("Enter")
    await expect(page.locator("#jobs tbody tr")).to_have_count(1)
    await expect(page.locator("#jobs tbody tr")).to_contain_text("other")
    await page.get_by_label("Queue", exact=True).fill("nowhere")
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_text("Nothing fits this filter.")).to_be_visible()


async def test_failures_are_grouped_and_retried_together(app, served, tab, conn, send):
    page = tab.page
    async with working(app):
        jobs = await app.enqueue_many(send.job(n) for n in (1, 3, 5))
        for job in jobs:
            await ended(conn, job.id, 30)
    await page.goto(f"{served}/failures")
    row = page.locator("#failures tbody tr")
    await expect(row).to_have_count(1)
    await expect(row.locator("[data-name=Jobs]")).to_have_text("3")
    await tab.picture("failures")
    await row.get_by_role("button", name="Retry all").click()
    await expect(page.get_by_role("dialog")).to_contain_text("Retry 3 failed jobs")
    await say_yes(page, "Retry")
    await expect(page.locator(".steps li").last).to_contain_text("3 retried. Done.")
    assert (await app.admin.count("queued")).jobs == 3


async def test_a_job_is_enqueued_by_form(app, served, tab, send):
    page = tab.page
    await page.goto(f"{served}/jobs")
    await page.get_by_role("link", name="Enqueue a job").click()
    await page.get_by_label("Task").select_option("send")
    await expect(page.get_by_text("Send one mail.")).to_be_visible()
    await tab.picture("enqueue")
    tab.expected.append("400")
    await page.get_by_label("n int").fill('"seven"')
    await page.get_by_role("button", name="Enqueue", exact=True).click()
    await expect(page.get_by_role("dialog")).to_contain_text("n")
    await page.get_by_role("dialog").get_by_role("button", name="Close").click()
    await page.get_by_label("n int").fill("8")
    await page.get_by_text("More", exact=True).click()
    await page.get_by_label("Priority").fill("5")
    await page.get_by_role("button", name="Enqueue", exact=True).click()
    await say_yes(page, "Enqueue")
    await expect(page.get_by_role("status").filter(has_text="is enqueued")).to_be_visible()
    [row] = await app.admin.list("queued")
    assert (row.kind, row.args, row.priority) == ("send", {"n": 8}, 5)
    await page.goto(f"{served}/audit")
    await expect(page.locator("#audit tbody tr")).to_contain_text("enqueue")
    await tab.picture("audit")


async def test_a_job_that_is_not_there(served, tab):
    tab.expected.append("404")
    await tab.page.goto(f"{served}/jobs/12345")
    await expect(tab.page.get_by_text("There is no job 12345.")).to_be_visible()
    await tab.picture("refused")


async def test_a_job_is_deleted_for_good(app, served, tab, send):
    job = await send.enqueue(2)
    page = tab.page
    await page.goto(f"{served}/jobs/{job.id}")
    await page.get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("dialog")).to_contain_text(f"Delete job {job.id}?")
    await say_yes(page, "Delete")
    await expect(page.get_by_role("status").filter(has_text="deleted")).to_be_visible()
    assert await app.admin.get(job.id) is None
