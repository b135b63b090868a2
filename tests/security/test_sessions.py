"""Sessions of the dashboard end with the password or token they were begun with, and so do open streams and claims."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from control_plane.conftest import serving
from dashboard.conftest import ALL, READ, Browser
from howdah import Howdah
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.server import ControlPlaneServer
from howdah.dashboard.pages import live
from howdah.dashboard.sign_in import _hash
from kit.node import eventually
from kit.roles import serve_as_fleet

pytestmark = pytest.mark.anyio
OTHER = "another-password"


@asynccontextmanager
async def dashboard(app: Howdah, **options: Any) -> AsyncIterator[Browser]:
    """Serve the dashboard with these options, as a new process would."""
    serve_as_fleet(app)
    server = ControlPlaneServer(app, ServeOptions(port=0, **options))
    running = asyncio.create_task(server.run())
    browser = Browser(await server.listening())
    try:
        yield browser
    finally:
        await browser.http.aclose()
        server.stop()
        await running


async def cookie_of(app: Howdah, secret: str) -> dict[str, str]:
    async with dashboard(app, password=ALL, read_password=READ) as browser:
        assert (await browser.sign_in(secret)).status_code == 303
        return dict(browser.http.cookies)


@pytest.mark.parametrize(
    ("secret", "options", "status"),
    [
        (ALL, {"password": ALL, "read_password": READ}, 200),
        (ALL, {"password": OTHER, "read_password": READ}, 303),
        (ALL, {"read_password": READ}, 303),
        (ALL, {}, 303),
        (READ, {"password": ALL, "read_password": READ}, 200),
        (READ, {"password": ALL, "read_password": OTHER}, 303),
        (READ, {"password": READ}, 200),
    ],
)
async def test_a_changed_or_removed_password_ends_its_sessions(
    app: Howdah, secret: str, options: dict[str, str], status: int
) -> None:
    """The first and the fifth case are the control; in the last one the same password has other rights now."""
    cookies = await cookie_of(app, secret)

    async with dashboard(app, **options) as browser:
        browser.http.cookies.update(cookies)
        assert (await browser.get("/queues")).status_code == status


async def test_a_session_that_the_release_before_began_with_a_password_has_ended(app: Howdah, conn: Any) -> None:
    """It is not known which password that was."""
    await conn.execute(
        "insert into howdah.login (hash, who, level, expires_at)"
        " values ($1, 'password (all)', 'all', now() + interval '1 hour')",
        _hash("old"),
    )
    async with dashboard(app, password=ALL) as browser:
        browser.http.cookies.update({"howdah-session": "old"})
        assert (await browser.get("/queues")).status_code == 303


async def test_signing_out_deletes_the_session(app: Howdah, conn: Any) -> None:
    async with dashboard(app, password=ALL) as browser:
        await browser.sign_in(ALL)
        assert await conn.fetchval("select count(*) from howdah.login") == 1
        await browser.post("/logout")

    assert await conn.fetchval("select count(*) from howdah.login") == 0


async def test_behind_a_proxy_with_tls_cookies_are_for_tls_only(app: Howdah) -> None:
    async with dashboard(app, password=ALL, behind_tls=True) as browser:
        answer = await browser.sign_in(ALL)
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-howdah=")
        assert "secure" in cookie.lower()
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
        assert (await browser.http.get("/health")).headers["strict-transport-security"]
        value = cookie.partition("=")[2].partition(";")[0]

        for name, status in (("__Host-howdah", 200), ("howdah-session", 303)):
            browser.http.cookies.clear()
            assert (await browser.get("/queues", Cookie=f"{name}={value}")).status_code == status, name


async def test_without_tls_browsers_are_told_nothing_about_it(app: Howdah) -> None:
    async with dashboard(app, password=ALL) as browser:
        assert "strict-transport-security" not in (await browser.get("/login")).headers


async def test_a_live_stream_ends_with_its_session(app: Howdah, conn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "CHECK_EVERY", 0.3)
    async with dashboard(app, password=ALL) as browser:
        await browser.sign_in(ALL)
        async with browser.http.stream("GET", "/dashboard/live") as stream, asyncio.timeout(30):
            lines = stream.aiter_lines()
            assert await anext(lines) == "retry: 1000"
            await conn.execute("delete from howdah.login")
            rest = [line async for line in lines]

    assert "event: over" in rest


async def test_a_claim_that_waits_gets_nothing_once_its_token_is_revoked(app: Howdah, conn: Any) -> None:
    @app.task
    async def noop() -> None: ...

    async with serving(app) as plane:
        token, row = await plane.store.create("box", ["work"])
        worker = await plane.worker(token=token)
        waiting = asyncio.create_task(worker.tell("claim", {"max": 1, "wait": 20}))
        await asyncio.sleep(0.5)
        await plane.store.revoke(row.id)
        await asyncio.sleep(2.5)  # longer than the control plane believes what it has read
        job = await plane.enqueue()
        answer = await waiting

        assert answer.status == 401
        other = await plane.worker()
        await eventually(lambda: other.claim())
        assert (await plane.job(job))["attempt"] == 1, "nothing was charged for the claim that was taken back"


async def test_refused_tokens_are_logged_once_a_minute_for_each_address(
    app: Howdah, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(app) as plane:
        for _ in range(5):
            assert (await plane.ask("GET", "/stats", token="hwd_api_nonsense")).status == 401

    assert caplog.text.count("requests from 127.0.0.1 are rejected: ") == 1
    assert "nonsense" not in caplog.text
