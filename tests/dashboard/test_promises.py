"""What the dashboard promises beside its pages: a cookie for TLS only, bounded streams, a way to the trace."""

from __future__ import annotations

import asyncio
import ssl
import subprocess

import httpx2 as httpx
import pytest

from dashboard.conftest import ALL, Browser
from howdah import ConfigError
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.server import ControlPlaneServer
from howdah.dashboard.pages import live

pytestmark = pytest.mark.anyio
TRACE = "0af7651916cd43dd8448eb211c80319c"


async def test_over_tls_the_cookie_is_for_this_host_and_tls_only(app, tmp_path):
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=howdah"
    extra = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*words.split(), *extra], check=True, capture_output=True, timeout=30)
    server = ControlPlaneServer(app, ServeOptions(port=0, password=ALL, certificate=str(cert), key=str(key)))
    running = asyncio.create_task(server.run())
    browser = Browser(await server.listening())
    browser.http = httpx.AsyncClient(
        base_url=browser.url, trust_env=False, timeout=30, verify=ssl.create_default_context(cafile=str(cert))
    )
    try:
        cookie = (await browser.sign_in(ALL)).headers["set-cookie"]
        assert cookie.startswith("__Host-howdah=")
        for part in ("Path=/", "Secure", "HttpOnly", "SameSite=strict"):
            assert part.lower() in cookie.lower()
        assert "domain" not in cookie.lower()
        assert (await browser.get("/queues")).status_code == 200
    finally:
        await browser.http.aclose()
        server.stop()
        await running


async def test_so_many_streams_and_no_more(browser, monkeypatch):
    monkeypatch.setattr(live, "MAX_STREAMS", 2)
    await browser.sign_in(ALL)
    async with (
        browser.http.stream("GET", "/dashboard/live") as one,
        browser.http.stream("GET", "/dashboard/live") as two,
    ):
        for each in (one, two):
            assert await anext(each.aiter_lines()) == "retry: 1000"
        third = await browser.get("/live")
        assert third.status_code == 503
        assert "2 pages are live already" in third.text


async def test_a_job_leads_to_its_trace(app, conn):
    @app.task
    async def work(n: int) -> None: ...

    job = await work.enqueue(1)
    await conn.execute("update howdah.job set trace = $2 where id = $1", job.id, f"00-{TRACE}-b7ad6b7169203331-01")
    server = ControlPlaneServer(
        app, ServeOptions(port=0, auth="none", trace_url="https://traces.example.com/trace/{trace}")
    )
    running = asyncio.create_task(server.run())
    browser = Browser(await server.listening())
    try:
        assert f'href="https://traces.example.com/trace/{TRACE}"' in (await browser.get(f"/jobs/{job.id}")).text
    finally:
        await browser.http.aclose()
        server.stop()
        await running


@pytest.mark.parametrize("url", ["javascript:alert('{trace}')", "https://traces.example.com/"])
def test_a_way_to_traces_that_leads_nowhere_is_refused(url):
    with pytest.raises(ConfigError, match="trace_url must be an http address"):
        ServeOptions(trace_url=url)
