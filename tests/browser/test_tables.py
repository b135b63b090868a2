"""The pages of the application's own tables."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from table.ddl import ddl

pytestmark = pytest.mark.anyio


@pytest.fixture
async def uploads(app, conn):
    """A table with three rows: one waits, one is done, one failed."""
    await conn.execute(ddl(extra="n int"))
    await conn.execute("insert into uploads (n) select * from generate_series(1, 3)")
    await conn.execute("update uploads set state = 'completed', finished_at = now() where id = 2")
    await conn.execute(
        "update uploads set state = 'failed', failure_message = 'no disk', num_failures = 3 where id = 3"
    )

    @app.table("public.uploads", name="uploads").handler
    async def upload(row) -> None: ...


async def test_rows_are_seen_and_retried(app, uploads, served, tab, conn):
    page = tab.page
    await page.goto(f"{served}/tables")
    await expect(page.locator("#tables tbody tr")).to_contain_text("uploads")
    await tab.picture("tables")
    await page.locator("#tables tbody tr").get_by_role("link").first.click()
    await expect(page.locator("#rows tbody tr")).to_have_count(3)
    await page.get_by_role("link", name="Failed").click()
    await expect(page.locator("#rows tbody tr")).to_have_count(1)
    await expect(page.locator("#rows tbody tr")).to_contain_text("no disk")
    await tab.picture("rows")
    await page.locator("[data-choose]").check()
    await page.get_by_role("button", name="Retry").click()
    await page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    await expect(page.get_by_role("status").filter(has_text="1 queued")).to_be_visible()
    assert await conn.fetchval("select count(*) from uploads where state = 'queued'") == 2
    assert [(entry.verb, entry.thing) for entry in await app.admin.audit()] == [("retry", "row")]
    await page.get_by_role("link", name="1", exact=True).click()
    await expect(page.locator("#why")).to_contain_text("none of 0 live nodes")
    await tab.picture("row")


async def test_without_a_table_it_says_so(served, tab):
    await tab.page.goto(f"{served}/tables")
    await expect(tab.page.get_by_text("No table is known here")).to_be_visible()
