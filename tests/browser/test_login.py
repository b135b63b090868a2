"""Signing in and out in a real browser, and a server that goes and comes back."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import expect

from howdah.control_plane.options import ServeOptions
from howdah.control_plane.server import ControlPlaneServer
from kit.roles import serve_as_fleet

pytestmark = pytest.mark.anyio
PASSWORD = "a password of the dashboard"


async def test_somebody_signs_in_and_out(app, tab):
    serve_as_fleet(app)
    server = ControlPlaneServer(app, ServeOptions(port=0, password=PASSWORD))
    running = asyncio.create_task(server.run())
    page = tab.page
    tab.expected.append("401")
    await page.goto(f"{await server.listening()}/dashboard/queues")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    await tab.picture("login")
    await page.get_by_label("Password or token").fill("something else")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("not known here")
    await page.get_by_label("Password or token").fill(PASSWORD)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    await expect(page.locator("[data-live-text]")).to_have_text("Live")
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    server.stop()
    await running


async def test_the_page_is_live_again_when_the_server_is_back(app, tab):
    @app.task(queue="mail")
    async def send(n: int) -> None: ...

    first = ControlPlaneServer(app, ServeOptions(port=0, auth="none"))
    running = asyncio.create_task(first.run())
    url = await first.listening()
    page = tab.page
    tab.expected += ["ERR_", "Failed to load resource", "Failed to fetch"]
    await page.goto(f"{url}/dashboard/queues")
    lamp = page.locator("[data-live-text]")
    await expect(lamp).to_have_text("Live")
    first.stop()
    async with asyncio.timeout(30):
        await running
    await expect(lamp).not_to_have_text("Live")
    second = ControlPlaneServer(app, ServeOptions(port=int(url.rsplit(":", 1)[1]), auth="none"))
    running = asyncio.create_task(second.run())
    await second.listening()
    await send.enqueue(1)
    await expect(lamp).to_have_text("Live")
    await expect(page.locator("#queues [data-name=Queued]")).to_have_text("1")
    second.stop()
    await running
