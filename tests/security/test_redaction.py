"""What is hidden is hidden everywhere: on every page and command, and from a search."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from click.testing import CliRunner

from dashboard.conftest import ALL, READ
from howdah import Howdah, NewEvent
from howdah.cli import main
from kit.node import drain
from security.test_sessions import dashboard
from security.user_interfaces import follow, pages

pytestmark = pytest.mark.anyio
PASSWORD, CARD, PATIENT = "correct-horse-battery", "4111-2222-3333", "Ada-Lovelace"
APP = f"""
from howdah import Howdah
app = Howdah(redact=lambda kind, part, value: __import__("json").loads(
    __import__("json").dumps(value).replace("{PATIENT}", "(patient)")))
"""


def hide_patients(_kind: str, _part: str, value: Any) -> Any:
    return json.loads(json.dumps(value).replace(PATIENT, "(patient)"))


@pytest.fixture
async def hospital(app: Howdah) -> AsyncIterator[Howdah]:
    """An application whose hook hides patients, with failed and queued jobs, and a consumer that halted."""
    app.redact.hook = hide_patients

    @app.task(max_attempts=1)
    async def admit(patient: str, login: dict[str, str], note: str) -> None:
        raise ValueError(f"no bed for {patient} in ward {note}")

    @app.consumer("wards", on_failure="halt", max_failures=1)
    async def wards(event: Any) -> None:
        raise ValueError(f"{PATIENT} is nowhere")

    await admit.enqueue(PATIENT, {"password": PASSWORD}, "north")
    await app.log.append("Ward-1", NewEvent(type="Moved", data={"patient": PATIENT}))
    await drain(app)
    await admit.enqueue(PATIENT, {"password": PASSWORD}, "south")
    yield app
    await app.close()


async def test_no_page_shows_what_the_hook_hides(hospital: Howdah) -> None:
    async with dashboard(hospital, read_password=READ) as browser:
        await browser.sign_in(READ)
        answers = await follow(
            browser.http, [*pages(), "/dashboard/failures?since=all", "/dashboard/jobs?state=failed"]
        )

    assert "(patient)" in answers["/dashboard/"].text, "the overview shows the failure"
    assert "(patient)" in answers["/dashboard/failures?since=all"].text
    for address, answer in answers.items():
        assert PATIENT not in answer.text, address
        assert PATIENT not in str(answer.headers), address
        assert PASSWORD not in answer.text, address


async def test_failures_are_still_found_by_their_group(hospital: Howdah) -> None:
    async with dashboard(hospital, read_password=READ) as browser:
        await browser.sign_in(READ)
        page = (await browser.get("/failures")).text
        link = page.partition('href="/dashboard/jobs?')[2].partition('"')[0].replace("&amp;", "&")
        found = (await browser.get(f"/jobs?{link}")).text

    assert "fingerprint=" in link
    assert "/dashboard/jobs/1" in found


@pytest.mark.parametrize("secret", [ALL, READ])
async def test_a_search_finds_only_what_is_shown(hospital: Howdah, secret: str) -> None:
    """A search for hidden values would tell them letter by letter."""
    async with dashboard(hospital, password=ALL, read_password=READ) as browser:
        await browser.sign_in(secret)

        async def found(text: str, **more: str) -> bool:
            page = await browser.http.get("/dashboard/jobs", params={"text": text, **more})
            assert page.status_code == 200
            return "/dashboard/jobs/1" in page.text or "/dashboard/jobs/2" in page.text

        for part in (PASSWORD, PASSWORD[:4], PATIENT, PATIENT[:3], f'"{PATIENT[:2]}', f"bed for {PATIENT[:3]}"):
            for state in ("", "failed", "queued", "done"):
                assert not await found(part, state=state), (part, state)
        assert await found("north")
        assert await found("south", state="queued")
        assert await found('"note":"south"')
        assert await found("no bed for (patient)", state="failed") is False, "it is not stored so"
        assert await found("no bed for", state="failed")


async def test_a_search_goes_on_past_jobs_in_which_the_text_is_hidden(app: Howdah) -> None:
    """More jobs match than are on a page, and only the oldest shows the text."""

    @app.task
    async def visit(name: str, password: str) -> None: ...

    first = await visit.enqueue("horse", "x")
    await app.enqueue_many([visit.job("rider", "horse") for _ in range(130)])
    page = await app.admin.list(text="horse", limit=50, redact=app.redact)

    assert [row.id for row in page] == [first.id]
    assert page.next is None
    assert len(await app.admin.list(text="horse", limit=50)) == 50, "the control"
    await app.close()


async def test_the_command_shows_failures_as_the_hook_wants(
    hospital: Howdah, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hospital_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    env = {"HOWDAH_DSN": hospital.database.dsn, "HOWDAH_APP": "hospital_app:app"}
    for words in (["failures"], ["failures", "--json"]):
        done = await asyncio.to_thread(CliRunner().invoke, main, words, env=env, prog_name="howdah")
        assert done.exit_code == 0, done.output
        assert "(patient)" in done.output
        assert PATIENT not in done.output


@pytest.mark.superuser("sees what other roles run")
@pytest.mark.parametrize(("secret", "shown"), [(READ, False), (ALL, True)])
async def test_statements_of_other_sessions_are_shown_to_those_who_may_act(
    app: Howdah, conn: Any, direct: Any, secret: str, shown: bool
) -> None:
    other = await direct.connect("other")
    await other.execute("begin")
    await other.execute("select howdah.append('Order-1', '[{\"type\": \"Placed\"}]'), 'a value of theirs'")
    async with dashboard(app, password=ALL, read_password=READ) as browser:
        await browser.sign_in(secret)
        await asyncio.sleep(5.5)  # younger ones are not named
        pages = [(await browser.get(path)).text for path in ("/consumers", "/log", "/health", "/")]
    await other.close()

    assert "The frontier is held" in pages[0]
    assert any("a value of theirs" in page for page in pages) is shown
