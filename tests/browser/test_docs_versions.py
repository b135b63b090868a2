"""The version switch of the documentation site, in a real browser."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.async_api import expect

pytestmark = pytest.mark.anyio

SCRIPT = Path(__file__).parents[2] / "docs" / "_site" / "static" / "versions.js"
PAGE = """<!doctype html><html data-content_root="{root}"><title>{version}</title><link rel="icon" href="data:,">
<div class="sidebar-versions"><select><option>{version}.0</option></select></div><script>{script}</script></html>"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def docs_site(tmp_path: Path) -> Iterator[str]:
    """Two versions, of which only the older has the page howto/old.html."""
    for version, page, root in [("0.2", "index", "./"), ("0.3", "index", "./"), ("0.2", "howto/old", "../")]:
        file = tmp_path / version / f"{page}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(PAGE.format(root=root, version=version, script=SCRIPT.read_text(encoding="utf-8")))
    (tmp_path / "versions.json").write_text(json.dumps(["0.3", "0.2"]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


async def test_the_switch_offers_all_versions_and_keeps_the_page(docs_site, tab):
    page = tab.page
    await page.goto(f"{docs_site}/0.2/index.html")
    await expect(page.locator("option")).to_have_text(["0.3", "0.2"])
    await expect(page.locator("select")).to_have_value("0.2")

    await page.locator("select").select_option("0.3")

    await expect(page).to_have_url(f"{docs_site}/0.3/index.html")
    await expect(page.locator("select")).to_have_value("0.3")


async def test_a_page_that_the_other_version_lacks_leads_to_its_start(docs_site, tab):
    tab.expected.append("404")
    page = tab.page
    await page.goto(f"{docs_site}/0.2/howto/old.html")
    await expect(page.locator("option")).to_have_text(["0.3", "0.2"])

    await page.locator("select").select_option("0.3")

    await expect(page).to_have_url(f"{docs_site}/0.3/")


async def test_a_site_of_one_version_shows_it(docs_site, tab, tmp_path):
    tab.expected.append("404")
    (tmp_path / "versions.json").unlink()
    await tab.page.goto(f"{docs_site}/0.2/index.html")

    await expect(tab.page.locator("option")).to_have_text(["0.2.0"])
