"""Listen: the sockets of a control plane, and uvicorn on them."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import uvicorn
from starlette.applications import Starlette

from howdah.errors import ConfigError
from howdah.fleet.options import ServeOptions

BACKLOG = 2048
GRACE = 2
"""Seconds requests have to end when the server does."""


class Http(uvicorn.Server):
    """Serves until ``should_exit``; signals are not its business."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield


def http_server(app: Starlette, options: ServeOptions) -> Http:
    """Uvicorn as a control plane needs it."""
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,  # nobody is believed to be who X-Forwarded-For says
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=75,
        limit_concurrency=options.connections,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    try:
        config.load()
    except OSError as error:  # also what ssl has to say
        raise ConfigError(f"the certificate {options.certificate} and its key cannot be used: {error}") from None
    return Http(config)


def bind(host: str, port: int) -> list[socket.socket]:
    """Take the port at every address ``host`` has; port 0 is any that is free."""
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
    """Where it is reached, on this machine."""
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"{'https' if options.certificate else 'http'}://{host}:{sockets[0].getsockname()[1]}"


def _addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    usable = []
    for family, _, _, _, address in found:
        with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address[0], 0))  # a name may have an address this machine does not
            usable.append((family, str(address[0])))
    if not usable:
        raise OSError("none of its addresses is of this machine")
    return list(dict.fromkeys(usable))
