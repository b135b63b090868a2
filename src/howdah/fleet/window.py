"""Window: the dashboard alone, for this machine: no API, and nobody signs in."""

from __future__ import annotations

import asyncio
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import Mount, Route

from howdah.app import Howdah
from howdah.dashboard.access import everybody
from howdah.dashboard.dashboard import Dashboard
from howdah.errors import ConfigError
from howdah.fleet.listen import bind, http_server, url_of
from howdah.fleet.options import ServeOptions
from howdah.fleet.reception import PATH, to_dashboard

HOST = "127.0.0.1"
USUAL = ServeOptions().port


def take_port(port: int | None) -> list[socket.socket]:
    """This port of this machine; ``None``: the usual one, or any if that is taken."""
    if port is not None:
        return bind(HOST, port)
    try:
        return bind(HOST, USUAL)
    except ConfigError:
        return bind(HOST, 0)


def address_of(sockets: Sequence[socket.socket]) -> str:
    """Where the dashboard is looked at."""
    return f"{url_of(sockets, ServeOptions(host=HOST))}{PATH}/"


def browse(address: str) -> None:
    """Show it in a browser, if this machine has one; never waits."""
    threading.Thread(target=webbrowser.open, args=(address,), name="howdah browser", daemon=True).start()


@asynccontextmanager
async def window(
    app: Howdah, sockets: Sequence[socket.socket], trace_url: str | None = None
) -> AsyncIterator[Dashboard]:
    """The dashboard of the app, served while the block lasts; requests under way have 2 s to end."""
    dashboard = Dashboard(app, access=everybody("all"), loopback=True, trace_url=trace_url)
    routes = [Route("/", to_dashboard), Route(PATH, to_dashboard), Mount(PATH, dashboard)]
    http = http_server(Starlette(routes=routes), ServeOptions(host=HOST))
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
