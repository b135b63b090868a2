"""Mount the dashboard in an application, behind the application's own login: `python examples/dashboard.py`.

Then open http://127.0.0.1:8000/ and log in as `owner` (may act) or as `support` (read-only), with the password
`open sesame`.
"""

import base64
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from howdah import Howdah
from howdah.dashboard import Dashboard, Level, Visitor
from howdah.postgres.embedded import server as embedded

PASSWORD = "open sesame"
LEVELS: dict[str, Level] = {"owner": "all", "support": "read"}

app = Howdah()


@app.task(queue="mail")
async def send_welcome(user_id: int) -> None:
    """Send a welcome mail (does nothing here)."""


async def login(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Authenticate the request; a stand-in for your application's own login, here HTTP Basic."""
    try:
        name, _, password = (
            base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode().partition(":")
        )
    except (KeyError, ValueError):
        name = password = ""
    if name not in LEVELS or not secrets.compare_digest(password.encode(), PASSWORD.encode()):
        return PlainTextResponse("who are you?", 401, headers={"WWW-Authenticate": 'Basic realm="shop"'})
    request.state.user = name
    return await call_next(request)


async def visitor(request: Request) -> Visitor | None:
    """Return the logged-in user as the dashboard and its audit log show them."""
    name: str = request.state.user
    return Visitor(name, LEVELS[name])


async def home(_request: Request) -> Response:
    made = await send_welcome.enqueue(7)
    return PlainTextResponse(f"enqueued job {made.id}; see /jobs/\n")


def site() -> Starlette:
    dashboard = Dashboard(app, access=visitor)

    @asynccontextmanager
    async def lifespan(_site: Starlette) -> AsyncIterator[None]:
        await app.migrate()
        yield
        await dashboard.close()
        await app.close()

    return Starlette(
        routes=[Route("/", home), Mount("/jobs", dashboard)],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=login)],
        lifespan=lifespan,
    )


if __name__ == "__main__":
    with embedded.start() as server:  # a private PostgreSQL; without connect_to, HOWDAH_DSN is used
        app.connect_to(server.dsn)
        port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
        # every open page holds an event stream; without a limit the server would wait for them at shutdown
        uvicorn.run(site(), port=port, timeout_graceful_shutdown=2)
