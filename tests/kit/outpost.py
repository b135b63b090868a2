"""A control plane and workers without a database, inside a test, over loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2 as httpx
import uvicorn

from howdah import Howdah, WorkerOptions
from howdah.fleet.client import Client
from howdah.fleet.options import ServeOptions
from howdah.fleet.remote import RemoteConductor
from howdah.fleet.server import Server
from howdah.fleet.tokens import Tokens
from howdah.pg.database import Session
from kit.roles import owner, serve_as_fleet


@dataclass(frozen=True, slots=True)
class Plane:
    """A control plane at work."""

    url: str
    token: str

    def client(self) -> httpx.AsyncClient:
        """Somebody who asks with an admin's token."""
        return httpx.AsyncClient(
            base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, trust_env=False, timeout=20
        )


@asynccontextmanager
async def serving(app: Howdah, *, heartbeat: float = 0.3, offline_after: float = 2.0) -> AsyncIterator[Plane]:
    """A control plane for ``app`` while the block lasts."""
    serve_as_fleet(app)
    session = Session(owner(app.database), "test")
    token, _ = await Tokens(owner(app.database), session).create("test", ["admin", "work", "read", "enqueue"])
    await session.close()
    server = Server(app, ServeOptions(heartbeat=heartbeat, offline_after=offline_after, rate=10_000))
    with socket.create_server(("127.0.0.1", 0)) as sock:
        async with server.open() as asgi:
            web = uvicorn.Server(uvicorn.Config(asgi, lifespan="off", log_config=None, access_log=False))
            running = asyncio.create_task(web.serve(sockets=[sock]))
            try:
                yield Plane(f"http://127.0.0.1:{sock.getsockname()[1]}", token)
            finally:
                web.should_exit = True
                await asyncio.wait_for(running, 60)


@asynccontextmanager
async def outpost(app: Howdah, plane: Plane, *, slots: int = 4, grace: float = 5.0) -> AsyncIterator[RemoteConductor]:
    """A worker without a database while the block lasts, then it drains."""
    options = WorkerOptions(slots=slots, grace=grace)
    conductor = RemoteConductor(app, options, lambda: Client(plane.url, plane.token))
    running = asyncio.create_task(conductor.run())
    try:
        yield conductor
    finally:
        conductor.stop()
        await asyncio.wait_for(running, 60)
