"""Listening sockets of the control plane, and uvicorn on them."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from starlette.applications import Starlette

from howdah.control_plane.connections import HEADER_TIMEOUT, limited_protocol
from howdah.control_plane.options import ServeOptions
from howdah.errors import ConfigError

BACKLOG = 2048
HSTS = ("Strict-Transport-Security", "max-age=31536000")
"""Header over TLS: a browser uses no plain connection to this host for a year."""
SHUTDOWN_TIMEOUT = 2
"""Seconds that running requests have to end at shutdown."""


class HttpServer(uvicorn.Server):
    """Uvicorn that serves until ``should_exit`` and leaves signals to the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on the sockets. Unlike that of uvicorn, this one has a deadline for the TLS handshake."""
        config, loop = self.config, asyncio.get_running_loop()

        def protocol() -> asyncio.Protocol:
            make: Any = config.http_protocol_class
            made: asyncio.Protocol = make(config=config, server_state=self.server_state, app_state={}, _loop=loop)
            return made

        self.servers = [
            await loop.create_server(
                protocol,
                sock=each,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=HEADER_TIMEOUT if config.ssl else None,
            )
            for each in sockets or ()
        ]
        self.started = True


def http_server(app: Starlette, options: ServeOptions) -> HttpServer:
    """Return uvicorn, configured for a control plane."""
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,  # X-Forwarded-For can be forged, and rate limits use the address
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
        timeout_keep_alive=75,
        limit_concurrency=options.connections,
        http=limited_protocol(options),
        headers=[HSTS] if options.certificate or options.behind_tls else [],
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    try:
        config.load()
    except OSError as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"the certificate {options.certificate} and its key cannot be used: {error}") from None
    return HttpServer(config)


def bind(host: str, port: int) -> list[socket.socket]:
    """Listen on the port at every address of ``host``; port 0 is any free one."""
    made: list[socket.socket] = []
    try:
        for family, address in _addresses(host):
            chosen = made[0].getsockname()[1] if made else port
            made.append(socket.create_server((address, chosen), family=family, backlog=BACKLOG))
    except (OSError, OverflowError) as error:
        for each in made:
            each.close()
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        why = "it is in use" if taken else str(error)
        raise ConfigError(f"cannot listen on {host} port {port}: {why}; choose another with --port") from None
    return made


def url_of(sockets: Sequence[socket.socket], options: ServeOptions) -> str:
    """Return the URL of the sockets, as seen from this machine."""
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"{'https' if options.certificate else 'http'}://{host}:{sockets[0].getsockname()[1]}"


def _addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    usable = []
    for family, _, _, _, address in found:
        with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address[0], 0))  # a host name may have addresses that this machine lacks
            usable.append((family, str(address[0])))
    if not usable:
        raise OSError("none of its addresses is of this machine")
    return list(dict.fromkeys(usable))
