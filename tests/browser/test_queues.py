"""The page of queues, as people see and use it."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

pytestmark = pytest.mark.anyio


async def test_a_queue_is_paused_and_resumed(app, served, tab):
    @app.task(queue="mail")
    async def send(n: int) -> None: ...

    await send.enqueue(1)
    page = tab.page
    await page.goto(f"{served}/queues")
    row = page.get_by_role("row").filter(has_text="mail")
    await expect(row.locator("[data-name=Queued]")).to_have_text("1")
    await row.get_by_role("button", name="Pause").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Pause queue mail?")
    await tab.picture("queues-asking")
    await dialog.get_by_role("button", name="Pause").click()

    await expect(page.get_by_role("status").filter(has_text="is paused")).to_be_visible()
    await expect(row).to_contain_text("paused")
    assert [queue.paused for queue in await app.admin.queues()] == [True]
    await tab.picture("queues")
    await row.get_by_role("button", name="Resume").click()
    await page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    await expect(row).not_to_contain_text("paused")
    assert [queue.paused for queue in await app.admin.queues()] == [False]


async def test_a_dialog_is_left_with_escape_and_nothing_is_done(app, served, tab):
    @app.task(queue="mail")
    async def send(n: int) -> None: ...

    await send.enqueue(1)
    page = tab.page
    await page.goto(f"{served}/queues")
    await page.get_by_role("button", name="Pause").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    assert [queue.paused for queue in await app.admin.queues()] == [False]


async def test_it_is_live(app, served, tab):
    @app.task(queue="mail")
    async def send(n: int) -> None: ...

    page = tab.page
    await page.goto(f"{served}/queues")
    await expect(page.locator("[data-live-text]")).to_have_text("Live")
    await expect(page.locator("#queues")).to_contain_text("No queue yet")
    for n in range(3):
        await send.enqueue(n)
    await expect(page.locator("#queues [data-name=Queued]")).to_have_text("3")
