"""The dashboard inside an application of your own, behind its own login: `python examples/dashboard.py`.

Then open http://127.0.0.1:8000/ and come in as `owner`, who may act, or as `support`, who may look; the password is
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
from howdah.dashboard import Dashboard, Visitor
from howdah.dashboard.access import Level
from howdah.pg import embedded

PASSWORD = "open sesame"
LEVELS: dict[str, Level] = {"owner": "all", "support": "read"}

app = Howdah()


@app.task(queue="mail")
async def send_welcome(user_id: int) -> None:
    """Say hello."""


async def login(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """What your application has already; here, HTTP Basic."""
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


async def who(request: Request) -> Visitor | None:
    """Whoever is logged in to the application, as the dashboard and its audit know them."""
    name: str = request.state.user
    return Visitor(name, LEVELS[name])


async def home(_request: Request) -> Response:
    made = await send_welcome.enqueue(7)
    return PlainTextResponse(f"enqueued job {made.id}; see /jobs/\n")


def site() -> Starlette:
    dashboard = Dashboard(app, access=who)

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
    with embedded.start() as server:  # a PostgreSQL of its own; yours is found by HOWDAH_DSN
        app.connect_to(server.dsn)
        port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
        # a page that is open holds a stream; without a limit the server would wait for it to be closed
        uvicorn.run(site(), port=port, timeout_graceful_shutdown=2)
