"""Who gets in, who may act, and what every page asks of whoever comes."""

from __future__ import annotations

import asyncio
import time

import pytest

from dashboard.conftest import ALL, READ
from howdah.dashboard import sign_in
from howdah.dashboard.pages import PAGES
from howdah.dashboard.sign_in import LOGIN_PAGES
from kit.node import eventually

pytestmark = pytest.mark.anyio
EVERY = sorted({(page.method, page.path, page.needs) for page in [*PAGES, *LOGIN_PAGES]})


def path_of(path: str) -> str:
    return path.replace("{id:int}", "1").replace("{position:int}", "1")


def test_nothing_but_the_login_is_open():
    assert {path for _, path, needs in EVERY if needs == "nothing"} == {"/login", "/logout"}
    assert {needs for method, path, needs in EVERY if method == "POST" and path not in ("/login", "/logout")} == {"all"}


@pytest.mark.parametrize(("method", "path", "needs"), [each for each in EVERY if each[2] != "nothing"])
async def test_strangers_see_nothing(browser, method, path, needs):
    answer = await (browser.get if method == "GET" else browser.post)(path_of(path))
    if method == "GET" and path != "/live":
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/dashboard/login?to=")
    else:
        assert answer.status_code == 401


@pytest.mark.parametrize(("method", "path", "needs"), [each for each in EVERY if each[2] == "all"])
async def test_who_may_only_look_does_nothing(browser, method, path, needs):
    await browser.sign_in(READ)
    answer = await (browser.get if method == "GET" else browser.post)(path_of(path))
    assert answer.status_code == 403
    assert "You may look, but not act." in answer.text


async def test_who_may_look_sees_no_buttons(app, browser):
    @app.task
    async def work(n: int) -> None: ...

    await work.enqueue(1)
    await browser.sign_in(READ)
    for path in ("/queues", "/jobs", "/jobs/1"):
        seen = (await browser.get(path)).text
        assert "read only" in seen
        assert "/act" not in seen
        assert "/pause" not in seen
    await browser.post("/logout")
    await browser.sign_in(ALL)
    assert "/jobs/act" in (await browser.get("/jobs/1")).text


async def test_the_way_in_and_out(browser):
    wrong = await browser.sign_in("something-else")
    assert wrong.status_code == 401
    assert "not known here" in wrong.text
    right = await browser.sign_in(ALL)
    assert (right.status_code, right.headers["location"]) == (303, "/dashboard/queues")
    cookie = right.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert (await browser.get("/queues")).status_code == 200
    held = dict(browser.http.cookies)
    await browser.post("/logout")
    browser.http.cookies.update(held)  # what was held is worth nothing now
    assert (await browser.get("/queues")).status_code == 303


async def test_nobody_is_sent_elsewhere_after_the_login(browser):
    for to in ("https://example.com/", "//example.com", "/\\example.com", "javascript:alert(1)"):
        answer = await browser.post("/login", {"secret": ALL, "to": to})
        assert answer.headers["location"] == "/dashboard/"


async def test_tokens_open_it_by_their_scopes(browser, tokens):
    admin, _ = await tokens.create("boss", ["admin"])
    read, _ = await tokens.create("watcher", ["read"])
    work, _ = await tokens.create("box", ["work"])
    some, _ = await tokens.create("some", ["read"], queues=["mail"])
    assert (await browser.sign_in(work)).status_code == 401
    assert (await browser.sign_in(some)).status_code == 401
    assert (await browser.sign_in(read)).status_code == 303
    assert "watcher" in (await browser.get("/queues")).text
    assert (await browser.post("/queues/pause", {"queue": "mail", "sure": "yes"})).status_code == 403
    assert (await browser.sign_in(admin)).status_code == 303
    assert (await browser.post("/queues/pause", {"queue": "mail", "sure": "yes"})).status_code == 303


async def test_a_revoked_token_ends_its_sessions(browser, tokens):
    read, row = await tokens.create("watcher", ["read"])
    await browser.sign_in(read)
    assert (await browser.get("/queues")).status_code == 200
    await tokens.revoke(row.id)

    async def out():
        return (await browser.get("/queues")).status_code == 303

    await eventually(out, 10)


async def test_after_too_many_wrong_passwords_attempts_are_slow_and_few(browser, monkeypatch):
    monkeypatch.setattr(sign_in, "SLOW_ATTEMPT", 1.5)
    answers = [(await browser.sign_in(f"wrong-{n}")).status_code for n in range(10)]
    assert answers == [401] * 10

    began = time.monotonic()
    at_once = await asyncio.gather(*(browser.sign_in(f"wrong-{n}") for n in range(8)))
    assert sorted(each.status_code for each in at_once) == [401] * 5 + [429] * 3
    assert time.monotonic() - began > 1.4


async def test_wrong_passwords_do_not_lock_out_the_right_one(browser, monkeypatch, caplog):
    """Behind a proxy all users have the same address."""
    monkeypatch.setattr(sign_in, "SLOW_ATTEMPT", 0.2)
    for n in range(12):
        await browser.sign_in(f"wrong-{n}")

    assert (await browser.sign_in(ALL)).status_code == 303
    assert caplog.text.count("a wrong password or token for the dashboard came from 127.0.0.1") == 12


async def test_an_ipv6_network_counts_as_one_address():
    limiter = sign_in.LoginLimiter()
    for n in range(10):
        limiter.count_failure(f"2001:db8::{n}")

    began = time.monotonic()
    async with limiter.attempt("2001:db8::ffff"):
        slow = time.monotonic() - began
    assert slow > 1.9


async def test_only_hashes_are_kept(browser, conn):
    answer = await browser.sign_in(ALL)
    id = answer.cookies["howdah-session"]
    [row] = await conn.fetch("select * from howdah.login")
    assert id not in str(dict(row))
    assert ALL not in str(dict(row))


async def test_a_session_ends(browser, conn):
    await browser.sign_in(ALL)
    await conn.execute("update howdah.login set expires_at = now() - interval '1 second'")

    async def out():
        return (await browser.get("/queues")).status_code == 303

    await eventually(out, 10)


async def test_live_streams_end_with_the_server(app, conn):
    from howdah.control_plane.options import ServeOptions
    from howdah.control_plane.server import ControlPlaneServer

    server = ControlPlaneServer(app, ServeOptions(port=0, auth="none"))
    running = asyncio.create_task(server.run())
    url = await server.listening()
    from dashboard.conftest import Browser

    browser = Browser(url)
    async with browser.http.stream("GET", "/dashboard/live") as stream:
        lines = stream.aiter_lines()
        assert await anext(lines) == "retry: 1000"
        server.stop()
        rest = [line async for line in lines]
        assert "event: over" in rest
    async with asyncio.timeout(30):
        await running
    await browser.http.aclose()
