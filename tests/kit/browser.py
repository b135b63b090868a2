"""A real browser, and what went wrong in it.

HOWDAH_CHROMIUM names the browser; else ``chromium`` is looked for. HOWDAH_SCREENSHOTS names a folder for pictures of
every page that is looked at.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright, expect

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1360, "height": 900}
PAGE_TIMEOUT = 30_000
"""Milliseconds; a busy machine is slow, and a page that is right comes at once."""
expect.set_options(timeout=PAGE_TIMEOUT)


def chromium() -> str | None:
    """Where the browser is."""
    return os.environ.get("HOWDAH_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """A browser, while the block lasts."""
    async with async_playwright() as play:
        browser = await play.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        try:
            yield browser
        finally:
            await browser.close()


class Tab:
    """One page that is looked at; ``trouble`` is what its console, its scripts and its policy complained of."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.trouble: list[str] = []
        self.expected: list[str] = []
        """Parts of complaints that belong to the test."""
        page.set_default_timeout(PAGE_TIMEOUT)
        page.on("console", lambda message: self._note(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self._note(str(error)))
        page.on("dialog", self._dialog)

    def _note(self, text: str) -> None:
        if not any(part in text for part in self.expected):
            self.trouble.append(text)

    async def _dialog(self, dialog: object) -> None:
        self._note(f"a script opened a dialog: {dialog}")
        await dialog.dismiss()  # type: ignore[attr-defined]

    async def picture(self, name: str) -> None:
        """Keep what it looks like, in light and dark, at a desk and on a phone, if pictures are wanted."""
        folder = os.environ.get("HOWDAH_SCREENSHOTS")
        if not folder:
            return
        Path(folder).mkdir(parents=True, exist_ok=True)
        before = self.page.viewport_size
        for theme in ("light", "dark"):
            await self.page.evaluate(
                """theme => {
                    document.documentElement.dataset.theme = theme;
                    document.body.dispatchEvent(new CustomEvent("theme"));
                }""",
                theme,
            )
            for screen, size in (("desk", DESK), ("phone", PHONE)):
                await self.page.set_viewport_size(size)  # type: ignore[arg-type]
                await self.page.wait_for_timeout(150)
                await self.page.screenshot(path=Path(folder) / f"{name}-{theme}-{screen}.png", full_page=True)
        if before:
            await self.page.set_viewport_size(before)
