"""A dashboard that is served, with real nodes behind it, and a browser to look at it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Browser

from howdah import Howdah
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.server import ControlPlaneServer
from kit.browser import DESK, Tab, browsing, chromium


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Without a browser there is nothing to look with."""
    if chromium() is None:
        for item in items:
            if "tests/browser" in str(item.path):
                item.add_marker(pytest.mark.skip(reason="no chromium; Debian and Ubuntu: apt install chromium"))


@pytest.fixture
async def app(database) -> AsyncIterator[Howdah]:
    """The application; tests add their tasks to it."""
    app = Howdah(database.dsn)
    yield app
    await app.close()


@pytest.fixture
async def served(app) -> AsyncIterator[str]:
    """The address of its dashboard, open to this machine; ends with the test."""
    server = ControlPlaneServer(app, ServeOptions(port=0, auth="none"))
    running = asyncio.create_task(server.run())
    try:
        yield f"{await server.listening()}/dashboard"
    finally:
        server.stop()
        await running


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """A real one."""
    async with browsing() as browser:
        yield browser


@pytest.fixture
async def tab(browser) -> AsyncIterator[Tab]:
    """A page; in the end nothing may have gone wrong in it."""
    context = await browser.new_context(viewport=DESK)
    tab = Tab(await context.new_page())
    yield tab
    await context.close()
    assert tab.trouble == []
