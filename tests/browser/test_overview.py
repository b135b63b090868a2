"""The first page, alive."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import expect

from howdah import WorkerOptions

pytestmark = pytest.mark.anyio


async def test_it_is_alive(app, served, tab):
    @app.task(queue="mail", max_attempts=1)
    async def send(n: int) -> None:
        await asyncio.sleep(0.05)
        if n % 5 == 0:
            raise ValueError(f"no mailbox {n}")

    @app.task(queue="slow")
    async def render(n: int) -> None:
        await asyncio.sleep(3600)

    page = tab.page
    await page.goto(f"{served}/")
    await expect(page.get_by_text("No queue yet")).to_be_visible()
    await tab.picture("overview-empty")
    running = asyncio.create_task(app.work(WorkerOptions(slots=4, heartbeat=0.5, lease=10)))
    await render.enqueue(1)
    await app.enqueue_many(send.job(n) for n in range(1, 200))
    await expect(page.locator("#now")).to_contain_text("of 4 slots")
    await expect(page.locator("#lists")).to_contain_text("no mailbox")
    await expect(page.locator("#lists")).to_contain_text("render 1")
    await expect(page.locator("#now")).to_contain_text("160 in the last hour", timeout=60_000)
    await expect(page.locator("canvas")).to_have_count(2)
    drawn = await page.evaluate("""() => [...document.querySelectorAll('canvas')].map(
        (each) => each.getContext('2d').getImageData(0, 0, each.width, each.height).data.some((byte) => byte > 0))""")
    assert drawn == [True, True]
    await page.wait_for_timeout(3000)
    await tab.picture("overview")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_needs_somebody_is_said_first(app, served, tab):
    @app.task(queue="mail")
    async def send(n: int) -> None: ...

    await send.enqueue(1)
    await app.admin.pause("mail")
    page = tab.page
    await page.goto(f"{served}/")
    await expect(page.get_by_role("link", name="Queue mail is paused; queued jobs: 1")).to_be_visible()
    await expect(page.get_by_role("link", name="No node is live; queued jobs: 1")).to_be_visible()
    await page.keyboard.press("g")
    await page.keyboard.press("q")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()


async def test_light_and_dark(served, tab):
    page = tab.page
    await page.goto(f"{served}/")
    before = await page.evaluate("document.documentElement.dataset.theme")
    await page.get_by_role("button", name="Light / dark").click()
    after = await page.evaluate("document.documentElement.dataset.theme")
    assert {before, after} == {"light", "dark"}
    await page.goto(f"{served}/queues")
    assert await page.evaluate("document.documentElement.dataset.theme") == after
