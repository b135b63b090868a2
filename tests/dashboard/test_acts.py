"""Acts from the dashboard: on jobs as they were shown, within the time and the queue of the page."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from howdah import Poison
from kit.node import drain

pytestmark = pytest.mark.anyio
FORM = re.compile(r'<form [^>]*action="[^"]*/jobs/act".*?</form>', re.DOTALL)
FIELD = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)"')
CHOICE = re.compile(r'<input type="checkbox" name="id" value="([^"]*)"')


@pytest.fixture
async def shop(app, browser):
    @app.task(queue="mail")
    async def fail(n: int = 0) -> None:
        raise Poison("on purpose")

    await browser.sign_in("all-all-all-all")
    return app


async def failed(shop, queue: str = "mail", count: int = 1) -> list[int]:
    job = shop.tasks["fail"].using(queue=queue)
    made = [(await job.enqueue(n)).id for n in range(count)]
    await drain(shop)
    return made


async def states(conn) -> dict[int, str]:
    return {row["id"]: row["state"] for row in await conn.fetch("select id, state from howdah.jobs")}


def forms(page: Any) -> list[dict[str, str]]:
    """The hidden fields of every form that acts on jobs."""
    return [{name: unescape(value) for name, value in FIELD.findall(form)} for form in FORM.findall(page.text)]


async def test_a_chosen_job_that_changed_since_it_was_shown_is_left_alone(shop, browser, conn):
    one, two = await failed(shop, count=2)
    shown = CHOICE.findall((await browser.get("/jobs?state=failed")).text)
    await conn.execute("select howdah.retry(array[$1::int8])", two)

    asked = await browser.post("/jobs/act", {"verb": "delete", "scope": "chosen", "id": shown})
    done = await browser.post("/jobs/act", {"verb": "delete", "scope": "chosen", "id": shown, "sure": "yes"})

    assert len(shown) == 2
    assert "Delete 2 jobs?" in asked.text
    assert all(each in unescape(asked.text) for each in shown), "the question passes on what was seen"
    assert done.status_code == 303
    assert await states(conn) == {two: "queued"}, f"{one} is gone"


async def test_a_job_that_changed_since_its_page_was_shown_is_left_alone(shop, browser, conn):
    [id] = await failed(shop)
    [delete] = [form for form in forms(await browser.get(f"/jobs/{id}")) if form["verb"] == "delete"]
    await conn.execute("select howdah.retry(array[$1::int8])", id)

    await browser.post("/jobs/act", delete | {"sure": "yes"})

    assert await states(conn) == {id: "queued"}


async def test_a_bare_id_is_acted_on_whatever_its_state(shop, browser, conn):
    """The negative control."""
    [id] = await failed(shop)
    await conn.execute("select howdah.retry(array[$1::int8])", id)

    await browser.post("/jobs/act", {"verb": "delete", "id": str(id), "sure": "yes"})

    assert await states(conn) == {}


@pytest.mark.parametrize(
    "mark",
    [
        "7.failed",
        "7.nonsense.2026-01-01T00:00:00+00:00",
        "7.failed.soon",
        "7.failed.2026-01-01T00:00:00",
        "x.failed.",
        "7.done",
    ],
)
async def test_a_mark_that_cannot_be_read_is_refused_or_fits_no_job(shop, browser, conn, mark):
    [id] = await failed(shop)

    response = await browser.post("/jobs/act", {"verb": "delete", "id": mark.replace("7", str(id)), "sure": "yes"})

    assert response.status_code in (303, 400)
    assert await states(conn) == ({} if mark == "7.failed" else {id: "failed"})


async def test_retry_all_keeps_to_the_time_and_the_queue_of_the_page(shop, browser, conn):
    old, other, new = await failed(shop), await failed(shop, "other"), await failed(shop)
    await conn.execute("update howdah.done set finished_at = now() - interval '3 hours' where id = $1", old[0])
    page = await browser.get("/failures?since=hour&queue=mail")
    [everything] = [form for form in forms(page) if form.get("scope") == "all"]

    asked = await browser.post("/jobs/act", everything)
    await browser.post("/jobs/act", everything | {"sure": "yes"})

    assert "1 failed jobs" in asked.text
    assert await states(conn) == {old[0]: "failed", other[0]: "failed", new[0]: "queued"}


async def test_acting_on_all_that_fit_keeps_the_seconds_of_the_filter(shop, browser, conn):
    old, new = await failed(shop), await failed(shop)
    await conn.execute(
        "update howdah.done set finished_at = timestamptz '2026-01-31 12:00:25Z' + n * interval '40 s'"
        " from unnest($1::int8[]) with ordinality x(id, n) where done.id = x.id",
        [*old, *new],
    )
    page = await browser.get("/jobs?state=failed&finished_after=2026-01-31T12:01:20%2B00:00")
    [everything] = [form for form in forms(page) if form.get("scope") == "all"]

    await browser.post("/jobs/act", everything | {"verb": "retry", "sure": "yes"})

    assert await states(conn) == {old[0]: "failed", new[0]: "queued"}
