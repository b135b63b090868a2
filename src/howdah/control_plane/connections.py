"""Limits of HTTP connections: deadlines for slow clients, a cap per address, and file descriptors."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections import Counter
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from howdah.control_plane.local_user import is_other_user
from howdah.control_plane.options import ServeOptions
from howdah.dashboard.protection import network_of
from howdah.errors import ConfigError

log = logging.getLogger("howdah")

HEADER_TIMEOUT = 10.0
"""Seconds that a client has for the TLS handshake, and from the connection, or from the first byte of a later request,
to the end of the headers."""
BODY_TIMEOUT = 20.0
"""Seconds that a client has for the body of a request, besides those that ``SLOWEST_BODY`` adds."""
SLOWEST_BODY = 8192
"""Bytes per second: a body may take a second more for each of them."""
LINGER = 1.0
"""Seconds that a rejected connection stays open, so that the client can read the response."""
RESERVED_DESCRIPTORS = 128
"""File descriptors for everything but HTTP connections: PostgreSQL, files, log."""
MAX_LINGERING = RESERVED_DESCRIPTORS // 2
"""Rejected connections that are open at once; further ones are closed without a response."""
LEAST_CONNECTIONS = 16
WARN_EVERY = 60.0
"""Seconds between two warnings about rejected clients."""

TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
REJECTED = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 19\r\n"
    b"Retry-After: 1\r\nConnection: close\r\n\r\nService Unavailable"
)
_NOT_YOURS = b"without authentication only processes of the user who started this server may connect\n"
OTHER_USER = (
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%s"
) % (len(_NOT_YOURS), _NOT_YOURS)


def allowed_connections(options: ServeOptions) -> int:
    """Return how many HTTP connections the limit of open files allows; raise the soft limit as far as needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = options.connections + RESERVED_DESCRIPTORS
    infinite = resource.RLIM_INFINITY
    if soft == infinite or soft >= needed:
        return options.connections
    most = needed if hard == infinite else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):
        most = soft
    allowed = most - RESERVED_DESCRIPTORS
    if allowed < LEAST_CONNECTIONS:
        raise ConfigError(
            f"the limit of open files is {most}, too low for a server; set it to {needed} (ulimit -n, LimitNOFILE=)"
        )
    if allowed < options.connections:
        log.warning(
            "the limit of open files is %d, so only %d connections are accepted instead of %d; set it to %d"
            " (ulimit -n, LimitNOFILE=)",
            most,
            allowed,
            options.connections,
            needed,
        )
    return min(allowed, options.connections)


class ConnectionLimits:
    """Counts the open connections of a server, in all and by address."""

    def __init__(self, most: int, per_address: int) -> None:
        self._most = most
        self._per_address = per_address
        self._open: Counter[str] = Counter()
        self._lingering = 0
        self._events: Counter[str] = Counter()
        """Rejections since the last warning, by reason."""
        self._warned = -WARN_EVERY

    def admit(self, address: str) -> bool:
        """Count a connection, unless there are too many."""
        if self._open.total() >= self._most:
            self.warn(f"rejected: all {self._most} connections are in use")
        elif self._open[address] >= self._per_address:
            self.warn(f"rejected: their address has {self._per_address} connections already")
        else:
            self._open[address] += 1
            return True
        return False

    def release(self, address: str) -> None:
        """Count a connection as closed."""
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]

    def may_linger(self) -> bool:
        """Return whether a rejected connection may stay open for a moment; if so, it is counted."""
        if self._lingering >= MAX_LINGERING:
            return False
        self._lingering += 1
        return True

    def end_linger(self) -> None:
        """Count a rejected connection as closed."""
        self._lingering -= 1

    def warn(self, event: str) -> None:
        """Log what happened to clients, at most once a minute."""
        self._events[event] += 1
        now = time.monotonic()
        if now - self._warned >= WARN_EVERY:
            self._warned = now
            for each, times in self._events.items():
                log.warning("%d connections were %s", times, each)
            self._events.clear()


_Protocol: Any = AutoHTTPProtocol


class LimitedProtocol(_Protocol):  # type: ignore[misc]
    """The HTTP protocol of uvicorn, with limits for the client.

    Uvicorn has no deadline for a request that is not complete, so clients that send nothing, half of the headers or
    half of a body would use up all connections.
    """

    limits: ConnectionLimits
    """Of the server, for all its connections."""
    own_user_only = False
    """True if connections of other users of this machine are rejected."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the deadline of the first request, or reject the connection."""
        peer = transport.get_extra_info("peername")
        self._address = network_of(peer[0]) if isinstance(peer, tuple) else ""
        self._timer: asyncio.TimerHandle | None = None
        self._reading: object = None
        """The incomplete part of a request: the headers (``self``), or the body (its cycle)."""
        self._until = 0.0
        self._received = False
        self._lingers = False
        foreign = self.own_user_only and is_other_user(transport)
        self._admitted = not foreign and self.limits.admit(self._address)
        if self._admitted:
            super().connection_made(transport)
            self._start(self, HEADER_TIMEOUT)
            return
        self.transport = transport
        self._lingers = self.limits.may_linger()
        if not self._lingers:
            transport.abort()
            return
        transport.write(OTHER_USER if foreign else REJECTED)
        if transport.can_write_eof():
            transport.write_eof()
        self.loop.call_later(LINGER, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadline."""
        self._stop()
        if self._lingers:
            self.limits.end_linger()
        if self._admitted:
            self.limits.release(self._address)
            super().connection_lost(exc)

    def eof_received(self) -> bool | None:
        """Keep a rejected connection open until its response is sent."""
        return super().eof_received() if self._admitted else True

    def data_received(self, data: bytes) -> None:
        """Start, extend or stop the deadline by what is complete now."""
        if not self._admitted:
            return
        self._received = True
        super().data_received(data)
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            if self._reading is not self:
                self._start(self, HEADER_TIMEOUT)
        else:
            self._body(cycle, len(data))

    def on_response_complete(self) -> None:
        """Leave the connection to the keep-alive timeout of uvicorn, unless the next request is here already."""
        super().on_response_complete()
        if not self.cycle.response_complete:
            self._body(self.cycle, 0)
        elif self.cycle.more_body:  # it was answered before its body was complete
            self._start(self, HEADER_TIMEOUT)
        else:
            self._stop()

    def pause_writing(self) -> None:
        """Leave out what uvicorn does for a connection that it does not know."""
        if self._admitted:
            super().pause_writing()

    def _body(self, cycle: Any, size: int) -> None:
        if not cycle.more_body:
            self._stop()
        elif self._reading is not cycle:
            self._start(cycle, BODY_TIMEOUT)
        else:
            self._until += size / SLOWEST_BODY

    def _start(self, what: object, seconds: float) -> None:
        self._stop()
        self._reading = what
        self._until = self.loop.time() + seconds
        self._timer = self.loop.call_later(seconds, self._check)

    def _stop(self) -> None:
        self._reading = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        """Close the connection if its deadline has passed."""
        left = self._until - self.loop.time()
        if self._reading is not self and self.flow.read_paused:
            left = BODY_TIMEOUT  # the server is not reading, so the client cannot send
        if left > 0:
            self._timer = self.loop.call_later(left, self._check)
            return
        self._stop()
        self.limits.warn("closed: no complete request came in time")
        answered = self.cycle is not None and self.cycle.response_started and self.cycle.more_body
        if self._received and not answered:
            self.transport.write(TIMED_OUT)
        self.transport.close()


def limited_protocol(options: ServeOptions) -> type[LimitedProtocol]:
    """Return the protocol of one server."""
    most = allowed_connections(options)
    limits = ConnectionLimits(most, options.connections_per_address or max(1, most // 2))
    own = {"limits": limits, "own_user_only": options.auth == "none"}
    return type("LimitedProtocol", (LimitedProtocol,), own)
