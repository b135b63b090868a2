"""A control plane on a free port, a client for its API, and workers over plain HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2 as httpx
import pytest

from howdah import Howdah
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.server import ControlPlaneServer
from howdah.control_plane.sockets import bind, http_server, url_of
from howdah.control_plane.tokens import SCOPES, Tokens
from howdah.postgres.database import Session
from kit.node import eventually
from kit.roles import owner, serve_as_fleet

QUICK: dict[str, Any] = {
    "port": 0,
    "heartbeat": 0.5,
    "offline_after": 5.0,
    "poll": 1.0,
    "rate": 10_000,
    "refusals": 10_000,
}
OWN = object()
"""Default of ``token``: that of an admin."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Response of the control plane."""

    status: int
    headers: httpx.Headers
    content: bytes
    body: Any

    @property
    def error(self) -> Any:
        """Error: code, message and, if known, field."""
        return self.body["error"]


class ControlPlane:
    """A running control plane; requests are those of an admin unless another token is given."""

    def __init__(self, url: str, tokens: dict[str, str], store: Tokens, app: Howdah) -> None:
        self.url = url
        self.tokens = tokens
        self.store = store
        """Creates and revokes tokens."""
        self.app = app
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self.http = httpx.AsyncClient(base_url=url, timeout=30, trust_env=False, limits=limits)

    @property
    def port(self) -> int:
        """Port it listens on."""
        return int(self.url.rsplit(":", 1)[1])

    async def ask(self, method: str, path: str, body: Any = None, *, token: Any = OWN, **more: Any) -> Answer:
        """Send one request; ``content`` instead of ``body`` sends bytes as they are."""
        headers = dict(more.pop("headers", {}))
        bearer = self.tokens["admin"] if token is OWN else token
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer}"
        if body is not None:
            more["json"] = body
        response = await self.http.request(method, path, headers=headers, **more)
        is_json = response.headers.get("content-type", "").startswith("application/json")
        return Answer(response.status_code, response.headers, response.content, response.json() if is_json else None)

    async def get(self, path: str, **more: Any) -> Answer:
        """Send a GET request."""
        return await self.ask("GET", path, **more)

    async def enqueue(self, kind: str = "noop", args: Any = None, **more: Any) -> int:
        """Enqueue a job over HTTP; return its id."""
        made = await self.ask("POST", "/jobs", {"kind": kind, "args": args or {}, **more})
        assert made.status == 201, made.body
        return int(made.body["id"])

    async def worker(self, *, token: Any = OWN, **more: Any) -> Worker:
        """Register a worker."""
        made = await self.ask("POST", "/workers/register", {"hostname": "w", "kinds": ["noop"], **more}, token=token)
        assert made.status == 201, made.body
        return Worker(self, made.body["id"], made.body["credential"])

    async def status(self, id: int) -> str:
        """Return the status of a worker."""
        return str((await self.get(f"/workers/{id}")).body["status"])

    async def job(self, id: int) -> Any:
        """Return the state of a job."""
        return (await self.get(f"/jobs/{id}")).body


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that speaks plain HTTP."""

    plane: ControlPlane
    id: int
    credential: str

    async def tell(self, verb: str, body: Any = None, *, method: str = "POST") -> Answer:
        """Send a request with its own credential."""
        path = f"/workers/{self.id}/{verb}" if verb else f"/workers/{self.id}"
        return await self.plane.ask(method, path, body, token=self.credential)

    async def claim(self, most: int = 1, **more: Any) -> list[Any]:
        """Claim jobs."""
        response = await self.tell("claim", {"max": most, **more})
        assert response.status in (200, 204), response.body
        return list(response.body["jobs"]) if response.status == 200 else []

    async def one(self, **more: Any) -> Any:
        """Claim one job, which must arrive within a few seconds."""
        [job] = await self.claim(1, **{"wait": 5, **more})
        return job

    async def beat(self, *jobs: Any, store: str = "jobs", **more: Any) -> Answer:
        """Send a heartbeat for these jobs."""
        held = [{"id": job["id"], "token": job["token"]} for job in jobs]
        return await self.tell("heartbeat", {"held": {store: held} if held else {}, **more})

    async def complete(self, job: Any, **more: Any) -> Answer:
        """Report a job as done."""
        return await self.tell(f"complete/{job['id']}", {"token": job["token"], **more})

    async def fail(self, job: Any, **more: Any) -> Answer:
        """Report a job as failed."""
        return await self.tell(f"fail/{job['id']}", {"token": job["token"], **more})

    async def ack(self, *reports: Any, **more: Any) -> Answer:
        """Report several outcomes."""
        return await self.tell("ack", {"acks": list(reports), **more})

    async def leave(self) -> Answer:
        """Deregister."""
        return await self.tell("", method="DELETE")


Serve = Callable[..., AbstractAsyncContextManager[ControlPlane]]


@asynccontextmanager
async def serving(app: Howdah, **options: Any) -> AsyncIterator[ControlPlane]:
    """Serve ``app`` as ``howdah serve`` does, in the loop of the test."""
    settings = ServeOptions(**{**QUICK, **options})
    serve_as_fleet(app)
    session = Session(owner(app.database), "test")
    store = Tokens(owner(app.database), session)
    tokens = {scope: (await store.create(f"for {scope}", [scope]))[0] for scope in SCOPES}
    sockets = bind(settings.host, settings.port)
    try:
        async with ControlPlaneServer(app, settings).open() as asgi:
            web = http_server(asgi, settings)
            running = asyncio.create_task(web.serve(sockets))
            plane = ControlPlane(url_of(sockets, settings), tokens, store, app)
            try:
                yield plane
            finally:
                await plane.http.aclose()
                web.should_exit = True
                await asyncio.wait_for(running, 60)
    finally:
        for each in sockets:
            each.close()
        await session.close()


@pytest.fixture
def serve(app: Howdah) -> Serve:
    """Start a control plane with other options than usual, or for another application."""
    return lambda app=app, **options: serving(app, **options)


@pytest.fixture
def job_app(app: Howdah) -> Howdah:
    """The application that is served."""

    @app.task
    async def noop(i: int = 0) -> None: ...

    @app.task
    async def other() -> None: ...

    return app


@pytest.fixture
async def plane(job_app: Howdah) -> AsyncIterator[ControlPlane]:
    """A control plane with short times."""
    async with serving(job_app) as plane:
        yield plane


@pytest.fixture
async def worker(plane: ControlPlane) -> Worker:
    """A worker for ``noop``."""
    return await plane.worker()


@pytest.fixture
def comes_to() -> Callable[..., Any]:
    """Wait until a coroutine function returns the expected value."""

    async def wait(ask: Callable[[], Any], expected: Any, seconds: float = 10.0) -> None:
        async def check() -> bool:
            return bool(await ask() == expected)

        await eventually(check, seconds)

    return wait
