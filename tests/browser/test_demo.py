"""The demo in a browser: its overview is alive, by itself."""

from __future__ import annotations

import asyncio
import re
import signal

import pytest
from playwright.async_api import expect

from kit.command import Command
from kit.node import eventually

pytestmark = pytest.mark.anyio

ADDRESS = re.compile(r"dashboard  (http://127\.0\.0\.1:\d+/dashboard/\?key=[\w-]+)")
LONG = 60_000
"""Milliseconds."""


async def test_the_overview_of_the_demo_moves(tab):
    page = tab.page
    with Command("demo") as demo:

        async def address() -> str:
            found = ADDRESS.search(demo.output)
            assert demo.process.poll() is None, demo.output
            return found[1] if found else ""

        async def developed() -> bool:
            await page.reload()
            return "completed" in (await page.locator("#rows").text_content() or "")

        await page.goto(await eventually(address, LONG / 1000))
        now, lists = page.locator("#now"), page.locator("#lists")
        done = now.locator(".stat", has_text="Done per second").locator(".note")
        await expect(done).to_have_text(re.compile(r"^[1-9][\d,]* in the last hour"), timeout=LONG)
        before = await done.text_content()
        await expect(done).not_to_have_text(before, timeout=LONG)
        for word in ("mail", "export_catalogue", "not a row of three"):
            await expect(lists).to_contain_text(word, timeout=LONG)
        await expect(lists.locator("progress").first).to_be_attached(timeout=LONG)
        await expect(page.locator("[data-live]")).to_have_text("Live", timeout=LONG)
        await page.wait_for_function("() => [...document.querySelectorAll('canvas')].length === 2", timeout=LONG)
        await tab.picture("demo-overview")

        await page.get_by_role("link", name="Tables").click()
        await page.get_by_role("link", name="photos").click()
        await eventually(developed, LONG / 1000)
        await tab.picture("demo-table")
        tab.expected.append("net::ERR")  # the server ends before the page
        demo.send(signal.SIGINT)
        assert await asyncio.to_thread(demo.ends) == 0, demo.output
