"""A control plane and remote nodes inside a test, over loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2 as httpx
import uvicorn

from howdah import Howdah, WorkerOptions
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.server import ControlPlaneServer
from howdah.control_plane.tokens import Tokens
from howdah.postgres.database import Session
from howdah.remote.client import ControlPlaneClient
from howdah.remote.node import RemoteNode
from kit.roles import owner, serve_as_fleet


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """URL and token of a running control plane."""

    url: str
    token: str

    def client(self) -> httpx.AsyncClient:
        """Return an HTTP client with the token of an admin."""
        return httpx.AsyncClient(
            base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, trust_env=False, timeout=20
        )


@asynccontextmanager
async def serving(app: Howdah, *, heartbeat: float = 0.3, offline_after: float = 2.0) -> AsyncIterator[ControlPlane]:
    """Serve a control plane for ``app`` while the block lasts."""
    serve_as_fleet(app)
    session = Session(owner(app.database), "test")
    token, _ = await Tokens(owner(app.database), session).create("test", ["admin", "work", "read", "enqueue"])
    await session.close()
    server = ControlPlaneServer(app, ServeOptions(heartbeat=heartbeat, offline_after=offline_after, rate=10_000))
    with socket.create_server(("127.0.0.1", 0)) as sock:
        async with server.open() as asgi:
            web = uvicorn.Server(uvicorn.Config(asgi, lifespan="off", log_config=None, access_log=False))
            running = asyncio.create_task(web.serve(sockets=[sock]))
            try:
                yield ControlPlane(f"http://127.0.0.1:{sock.getsockname()[1]}", token)
            finally:
                web.should_exit = True
                await asyncio.wait_for(running, 60)


@asynccontextmanager
async def run_remote_node(
    app: Howdah, plane: ControlPlane, *, slots: int = 4, grace: float = 5.0
) -> AsyncIterator[RemoteNode]:
    """Run a remote node while the block lasts; then it drains."""
    options = WorkerOptions(slots=slots, grace=grace)
    remote_node = RemoteNode(app, options, lambda: ControlPlaneClient(plane.url, plane.token))
    running = asyncio.create_task(remote_node.run())
    try:
        yield remote_node
    finally:
        remote_node.stop()
        await asyncio.wait_for(running, 60)
