"""Other users of the machine: what listens without a login serves the user who started it, and nobody else."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
import pytest

from howdah import Howdah
from howdah.control_plane.dashboard import address_of, serve_dashboard, take_port
from howdah.control_plane.local_user import _uid
from howdah.dashboard.link_key import LinkKey
from howdah.dashboard.pages import PAGES
from kit.serve_process import ControlPlaneProcess, ask

pytestmark = pytest.mark.anyio
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
NOBODY = 65534
ENQUEUE = """
import encodings.idna, os, socket, sys
os.setuid(int(sys.argv[3]))
body = b'{"kind": "noop"}'
conn = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10)
head = b"POST /jobs HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n"
conn.sendall(head % len(body) + body)
if sys.argv[2] == "and close":
    conn.close()
else:
    print(conn.recv(10_000).decode())
"""


@asynccontextmanager
async def served(app: Howdah, key: LinkKey) -> AsyncIterator[tuple[str, httpx.AsyncClient]]:
    """The dashboard as `howdah dev` and `howdah demo` serve it, and a browser."""
    sockets = take_port(0)
    address = address_of(sockets)
    async with serve_dashboard(app, sockets, key), httpx.AsyncClient(trust_env=False, timeout=30) as browser:
        yield address, browser


async def test_no_page_is_open_without_the_key(app: Howdah) -> None:
    async with served(app, LinkKey()) as (address, browser):
        origin = address.removesuffix("/dashboard/")
        for page in PAGES:
            url = address.rstrip("/") + page.path.replace("{id:int}", "1").replace("{position:int}", "1")
            for params in ({}, {"key": ""}, {"key": "wrong"}):
                answer = await browser.request(page.method, url, params=params, headers={"Origin": origin})
                assert answer.status_code == 403, (url, params)
                assert "needs its key" in answer.text
        browser.cookies.set("howdah-key-" + origin.rpartition(":")[2], "wrong")
        assert (await browser.get(address)).status_code == 403
    await app.close()


async def test_the_link_is_exchanged_for_a_cookie(app: Howdah) -> None:
    key = LinkKey()
    async with served(app, key) as (address, browser):
        entered = await browser.get(key.link(f"{address}queues") + "&x=1")
        assert entered.status_code == 303
        assert entered.headers["location"] == f"{address}queues?x=1", "the key is not left in the address"
        assert "httponly" in entered.headers["set-cookie"].lower()
        assert key.key not in entered.headers["set-cookie"]
        assert (await browser.get(f"{address}queues")).status_code == 200
    await app.close()


async def test_the_cookie_is_valid_after_a_restart_with_the_same_key_only(app: Howdah) -> None:
    key = LinkKey()
    async with served(app, key) as (address, browser):
        value = (await browser.get(key.link(address))).headers["set-cookie"].split("=")[1].split(";")[0]
    for again, status in ((LinkKey(key.key), 200), (LinkKey(), 403)):
        async with served(app, again) as (address, browser):
            port = address.removesuffix("/dashboard/").rpartition(":")[2]
            cookie = {"Cookie": f"howdah-key-{port}={value}"}
            assert (await browser.get(f"{address}queues", headers=cookie)).status_code == status
    await app.close()


def test_serve_without_authentication_prints_the_link_and_does_not_log_it(direct: Any) -> None:
    with ControlPlaneProcess("--auth", "none", dsn=direct.dsn) as plane:
        url = plane.url
        plane.says("dashboard http")
        [key] = re.findall(r"^dashboard http://\S+/dashboard/\?key=([\w-]+)$", plane.output, re.MULTILINE)
        assert plane.output.count(key) == 1
        assert ask(url, "/dashboard/")[0] == 403
        assert ask(url, "/stats")[0] == 200, "the API is open to processes of this user"


@AS_ROOT
def test_another_user_cannot_use_a_control_plane_without_authentication(direct: Any) -> None:
    with ControlPlaneProcess("--auth", "none", dsn=direct.dsn) as plane:
        port = str(plane.port)

        def enqueue(user: int, what: str = "and read") -> str:
            command = [sys.executable, "-c", ENQUEUE, port, what, str(user)]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

        assert enqueue(NOBODY).startswith("HTTP/1.1 403 Forbidden")
        for _ in range(20):
            enqueue(NOBODY, "and close")  # a closed socket belongs to nobody, which looks like root
        assert enqueue(0).startswith("HTTP/1.1 201"), "the control"
        assert ask(plane.url, "/stats")[1]["queues"][0]["queued"] == 1


def test_this_user_is_known_over_ipv4_and_ipv6() -> None:
    """Otherwise everything would be rejected, or nothing."""

    async def uid(host: str) -> int | None:
        seen: list[Any] = []

        def connected(_reader: Any, writer: asyncio.StreamWriter) -> None:
            seen.append(writer)

        server = await asyncio.start_server(connected, host, 0)
        async with server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
            while not seen:
                await asyncio.sleep(0.01)
            [at_server] = seen
            names = [at_server.get_extra_info(name) for name in ("peername", "sockname")]
            found = _uid(server.sockets[0].family, *names)
            writer.close()
            at_server.close()
        return found

    for host in ("127.0.0.1", "::1"):
        try:
            assert asyncio.run(uid(host)) == os.geteuid()
        except OSError:
            assert host == "::1", "this machine has no IPv6"
