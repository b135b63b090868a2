"""The pages of nodes, schedules and health, with a node that really works."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import expect

from howdah import WorkerOptions

pytestmark = pytest.mark.anyio
QUICK = WorkerOptions(slots=4, poll=0.5, heartbeat=0.3, lease=10)


async def test_a_node_is_seen_at_work_and_drained(app, served, tab):
    go = asyncio.Event()

    @app.task(queue="mail")
    async def send(n: int) -> None:
        await go.wait()

    page = tab.page
    await page.goto(f"{served}/nodes")
    await expect(page.get_by_text("No node is live")).to_be_visible()
    running = asyncio.create_task(app.work(QUICK))
    await send.enqueue(1)
    await send.enqueue(2)
    row = page.locator("#nodes tbody tr")
    await expect(row).to_contain_text("2 of 4")
    await expect(row).to_contain_text("busy")
    await tab.picture("nodes")
    await row.get_by_role("link").first.click()
    await expect(page.locator("#node")).to_contain_text("with the database")
    await expect(page.locator("#node tbody tr")).to_have_count(2)
    await tab.picture("node")

    await page.get_by_role("button", name="Drain").click()
    await page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    await expect(page.get_by_role("status").filter(has_text="asked to drain")).to_be_visible()
    await expect(page.locator("#node")).to_contain_text("draining")
    go.set()
    await running  # it ends by itself
    await expect(page.locator("#node")).to_contain_text("offline")
    await expect(page.locator("#node")).to_contain_text("It holds no job")


async def test_a_schedule_is_paused_and_resumed(app, served, tab):
    @app.task
    async def report() -> None: ...

    app.schedule("nightly", report.job(), cron="0 3 * * *", zone="Europe/Berlin")
    running = asyncio.create_task(app.work(QUICK))
    page = tab.page
    await page.goto(f"{served}/schedules")
    row = page.locator("#schedules tbody tr")
    await expect(row).to_contain_text("nightly")
    await tab.picture("schedules")
    await row.get_by_role("button", name="Pause").click()
    await page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    await expect(row).to_contain_text("paused")
    assert [each.paused for each in await app.admin.schedules()] == [True]
    await row.get_by_role("button", name="Resume").click()
    await page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    await expect(row).not_to_contain_text("paused")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_doctor_says_what_to_do(app, served, tab):
    @app.task(queue="mail")
    async def send(n: int) -> None: ...

    await send.enqueue(1)
    await app.admin.pause("mail", "somebody")
    page = tab.page
    await page.goto(f"{served}/health")
    finding = page.locator("#findings li").filter(has_text="paused")
    await expect(finding).to_contain_text("howdah resume mail")
    await expect(page.locator("#findings li").first).not_to_contain_text("ok")
    await tab.picture("health")
