"""A dashboard behind its login, asked over HTTP as a browser does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import pytest

from howdah import Howdah
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.server import ControlPlaneServer
from howdah.control_plane.tokens import Tokens
from howdah.postgres.database import Session
from kit.roles import fleet, owner

ALL, READ = "all-all-all-all", "read-read-read"


class Browser:
    """Asks as a browser would: it keeps cookies, follows nothing by itself, and says where it comes from."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.AsyncClient(base_url=url, trust_env=False, timeout=30)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.http.get(f"/dashboard{path}", headers=headers)

    async def post(self, path: str, fields: dict[str, Any] | None = None, **headers: str) -> httpx.Response:
        sent_headers = {"Origin": self.url, "Sec-Fetch-Site": "same-origin"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        return await self.http.post(
            f"/dashboard{path}", data=fields or {}, headers={k: v for k, v in sent_headers.items() if v}
        )

    async def sign_in(self, secret: str) -> httpx.Response:
        return await self.post("/login", {"secret": secret, "to": "/queues"})


@pytest.fixture
async def app(database) -> AsyncIterator[Howdah]:
    app = Howdah(fleet(database).dsn)
    yield app
    await app.close()


@pytest.fixture
async def tokens(database) -> AsyncIterator[Tokens]:
    session = Session(owner(database), "test")
    yield Tokens(owner(database), session)
    await session.close()


@pytest.fixture
async def guarded(app) -> AsyncIterator[str]:
    """A control plane whose dashboard wants a password or token."""
    server = ControlPlaneServer(app, ServeOptions(port=0, password=ALL, read_password=READ))
    running = asyncio.create_task(server.run())
    try:
        yield await server.listening()
    finally:
        server.stop()
        await running


@pytest.fixture
async def browser(guarded) -> AsyncIterator[Browser]:
    browser = Browser(guarded)
    yield browser
    await browser.http.aclose()
