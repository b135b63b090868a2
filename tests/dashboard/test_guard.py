"""What browsers may be made to send, and what comes back with every answer."""

from __future__ import annotations

import asyncio
import re

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from dashboard.conftest import ALL, Browser
from howdah import ConfigError
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.sockets import bind, http_server, url_of
from howdah.dashboard import Dashboard, Visitor, everybody
from howdah.dashboard.render import STATIC

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example", "Sec_Fetch_Site": "cross-site"},
        {"Origin": "https://evil.example", "Sec_Fetch_Site": ""},
        {"Origin": "", "Sec_Fetch_Site": "cross-site"},
        {"Origin": "", "Sec_Fetch_Site": "same-site"},
        {"Origin": "null", "Sec_Fetch_Site": ""},
        {"Origin": "", "Sec_Fetch_Site": ""},
    ],
    ids=["cross-site", "other origin", "no origin", "same site only", "null", "nothing said"],
)
async def test_other_sites_make_nobody_act(app, browser, headers):
    await browser.sign_in(ALL)
    answer = await browser.post("/queues/pause", {"queue": "mail", "sure": "yes"}, **headers)
    assert answer.status_code == 403
    assert [queue.paused for queue in await app.admin.queues()] == []


async def test_the_policy_is_strict_and_everywhere(browser):
    answers = [
        await browser.get("/login"),
        await browser.get("/queues"),
        await browser.get("/no-such-page"),
        await browser.get("/static/app.css"),
        await browser.post("/queues/pause"),
    ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert [answer.status_code for answer in answers] == [200, 303, 404, 200, 401]


def test_templates_are_always_escaped_and_have_no_inline_script_or_style():
    templates = list((STATIC.parent / "templates").iterdir())
    assert len(templates) > 20
    for template in templates:
        text = template.read_text()
        assert not re.search(r"\|\s*safe|autoescape|Markup", text), template.name
        assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son(?!ly=)\w+=|javascript:", text), template.name


def test_what_is_not_ours_is_what_it_was():
    import hashlib

    vendor = STATIC / "vendor"
    known = dict(reversed(line.split()) for line in (vendor / "SHA256SUMS").read_text().splitlines())
    files = {file.name for file in vendor.iterdir() if file.name.endswith((".js", ".css"))}
    assert files == set(known)
    for name, sum in known.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == sum
    assert {"htmx.LICENSE", "uPlot.LICENSE"} <= {file.name for file in vendor.iterdir()}


async def test_a_form_that_is_too_large_or_wrong(browser):
    await browser.sign_in(ALL)
    assert (await browser.post("/queues/pause", {"queue": "x" * 70_000})).status_code == 413
    assert (await browser.post("/queues/pause", {})).status_code == 400
    assert (await browser.post("/jobs/act", {"verb": "explode", "id": "1"})).status_code == 400
    assert (await browser.post("/jobs/act", {"verb": "retry", "id": "1 or 1=1"})).status_code == 400
    assert (await browser.get("/jobs?before=x")).status_code == 400
    assert (await browser.get("/jobs?state=nonsense")).status_code == 400
    assert (await browser.get("/jobs/99999999999999999999999")).status_code == 404


async def test_nothing_is_done_without_a_yes(app, browser):
    await browser.sign_in(ALL)
    asked = await browser.post("/queues/pause", {"queue": "mail"})
    assert (asked.status_code, "Pause queue mail?" in asked.text) == (200, True)
    assert [queue.paused for queue in await app.admin.queues()] == []


async def test_without_a_login_only_this_machine_is_answered(app):
    from howdah.control_plane.server import ControlPlaneServer

    server = ControlPlaneServer(app, ServeOptions(port=0, auth="none"))
    running = asyncio.create_task(server.run())
    browser = Browser(await server.listening())
    try:
        assert (await browser.get("/queues")).status_code == 200
        rebound = await browser.get("/queues", Host="evil.example")
        assert rebound.status_code == 403
        assert "not this machine" in rebound.text
    finally:
        await browser.http.aclose()
        server.stop()
        await running


async def test_it_is_mounted_in_an_application_with_a_login_of_its_own(app):
    async def who(request):
        return {"boss": Visitor("boss", "all"), "guest": Visitor("guest", "read")}.get(
            request.headers.get("x-user", "")
        )

    dashboard = Dashboard(app, access=who)
    options = ServeOptions(port=0)
    sockets = bind("127.0.0.1", 0)
    http = http_server(Starlette(routes=[Mount("/ops/dashboard", dashboard)]), options)
    running = asyncio.create_task(http.serve(sockets))
    browser = Browser(url_of(sockets, options) + "/ops")
    browser.url = url_of(sockets, options)
    try:
        assert (await browser.get("/queues")).status_code == 403
        seen = await browser.get("/queues", **{"X-User": "guest"})
        assert seen.status_code == 200
        assert 'href="/ops/dashboard/jobs"' in seen.text
        assert "Sign out" not in seen.text
        refused = await browser.post("/queues/pause", {"queue": "mail", "sure": "yes"}, X_User="guest")
        assert refused.status_code == 403
        done = await browser.post("/queues/pause", {"queue": "mail", "sure": "yes"}, X_User="boss")
        assert (done.status_code, done.headers["location"]) == (303, "/ops/dashboard/queues")
        assert [(entry.who, entry.via) for entry in await app.admin.audit()] == [("boss", "dashboard")]
        assert (await browser.get("/login")).status_code == 404
    finally:
        await browser.http.aclose()
        http.should_exit = True
        await running
        await dashboard.close()


async def test_somebody_must_say_who_may_look(app):
    with pytest.raises(ConfigError, match="choose who has access"):
        Dashboard(app)
    Dashboard(app, access=everybody())


def test_passwords_are_long_and_not_shown():
    with pytest.raises(ConfigError, match="at least 12 characters, got 5"):
        ServeOptions(password="short")
    with pytest.raises(ConfigError, match="are the same"):
        ServeOptions(password="x" * 12, read_password="x" * 12)
    assert "x" * 12 not in repr(ServeOptions(password="x" * 12))
