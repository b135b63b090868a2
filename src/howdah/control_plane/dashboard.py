"""The dashboard of a control plane, with login by token or password, and the dashboard alone on this machine."""

from __future__ import annotations

import asyncio
import atexit
import hmac
import html
import socket
import tempfile
import threading
import webbrowser
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from howdah.app import Howdah
from howdah.control_plane.auth import Authenticator
from howdah.control_plane.errors import RequestRejected
from howdah.control_plane.options import ServeOptions
from howdah.control_plane.sockets import bind, http_server, url_of
from howdah.control_plane.tokens import is_token
from howdah.dashboard import Dashboard, Level, Visitor, everybody
from howdah.dashboard.link_key import LinkKey
from howdah.dashboard.sign_in import seal_of
from howdah.errors import ConfigError

HOST = "127.0.0.1"
DEFAULT_PORT = ServeOptions().port


def take_port(port: int | None) -> list[socket.socket]:
    """Listen on this port of this machine; ``None``: the default one, or any if that is in use."""
    if port is not None:
        return bind(HOST, port)
    try:
        return bind(HOST, DEFAULT_PORT)
    except ConfigError:
        return bind(HOST, 0)


def address_of(sockets: Sequence[socket.socket]) -> str:
    """Return the URL of the dashboard."""
    return f"{url_of(sockets, ServeOptions(host=HOST))}{PATH}/"


def browse(link: str) -> None:
    """Open a link in a browser, if this machine has one, without waiting.

    The browser gets a file that only this user can read: all users can see the words of a command.
    """
    with tempfile.NamedTemporaryFile("w", prefix="howdah-", suffix=".html", delete=False) as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={html.escape(link)}">\n')
    atexit.register(Path(file.name).unlink, missing_ok=True)
    threading.Thread(target=webbrowser.open, args=(f"file://{file.name}",), name="howdah browser", daemon=True).start()


@asynccontextmanager
async def serve_dashboard(
    app: Howdah, sockets: Sequence[socket.socket], key: LinkKey, trace_url: str | None = None
) -> AsyncIterator[Dashboard]:
    """Serve the dashboard of the app while the block lasts; running requests have 2 s to end."""
    dashboard = Dashboard(app, access=key, loopback=True, trace_url=trace_url)
    routes = [Route("/", to_dashboard), Route(PATH, to_dashboard), Mount(PATH, dashboard)]
    http = http_server(Starlette(routes=routes), ServeOptions(host=HOST, auth="none"))
    serving = asyncio.create_task(http.serve(list(sockets)), name="howdah dashboard")
    try:
        yield dashboard
    finally:
        dashboard.stop()
        http.should_exit = True
        await asyncio.wait([serving])
        await dashboard.close()
        for each in sockets:
            each.close()
        serving.result()


PATH = "/dashboard"


class DashboardLogin:
    """Checks passwords and API tokens of people who sign in to the dashboard."""

    def __init__(self, auth: Authenticator, options: ServeOptions) -> None:
        self._auth = auth
        self._passwords: list[tuple[Level, str | None]] = [("all", options.password), ("read", options.read_password)]
        self.seals = [seal_of(password) for _, password in self._passwords if password]
        """Of the passwords: a session ends when its password is changed or removed."""

    async def __call__(self, secret: str) -> Visitor | None:
        """Return the visitor with this password or token.

        A token for some queues only is rejected: the pages show all queues.
        """
        for level, password in self._passwords:
            if password and hmac.compare_digest(password.encode(), secret.encode("utf-8", "surrogatepass")):
                return Visitor(f"password ({level})", level, seal=seal_of(password))
        if not is_token(secret, "api"):
            return None
        try:
            caller = await self._auth.token_caller(secret)
        except RequestRejected:
            return None
        if caller.queues is not None or not caller.has_scope("read"):
            return None
        return Visitor(caller.title, "all" if caller.has_scope("admin") else "read", caller.token)


def make_dashboard(app: Howdah, auth: Authenticator, options: ServeOptions, key: LinkKey | None = None) -> Dashboard:
    """Return the dashboard of a control plane; without authentication the ``key`` gives access."""
    if options.auth == "none":
        return Dashboard(app, access=key or everybody("all"), loopback=True, trace_url=options.trace_url)
    login = DashboardLogin(auth, options)
    return Dashboard(app, sign_in=login, secure=options.behind_tls, trace_url=options.trace_url)


async def to_dashboard(_request: Request) -> Response:
    """Redirect to the dashboard."""
    return RedirectResponse(f"{PATH}/", 303)
