"""Health of a node: its status, its liveness and readiness checks, and the HTTP server for health and metrics.

The server has a thread of its own, so it answers even while the event loop is blocked.
"""

from __future__ import annotations

import errno
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from howdah.errors import ConfigError
from howdah.observe.sampler import Counting

log = logging.getLogger("howdah")

MOST_CONNECTIONS = 32
LONGEST_REQUEST = 10.0
"""Longest duration of a connection in seconds, however slow the client is."""
TURN = 0.1
BLOCKED_TOO_LONG = 60.0
"""Seconds for which the event loop may be blocked; a node that is blocked longer must be restarted."""

Check = Callable[[], str | None]
"""Returns what is wrong, or ``None``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """Status of a node. Every property returns at once, in any thread, also before the node has started."""

    node: Callable[[], int]
    """Its id; 0 until it is registered."""

    ready: Callable[[], bool]
    """True if it takes work."""

    running: Callable[[], Sequence[str]]
    """The kind of every job running now, one entry per job."""

    busy: Callable[[], int]
    """The slots in use; a batch of jobs uses one."""

    loop_lag: Callable[[], float]
    """Seconds for which its event loop has been blocked, else 0."""

    slots: int
    """Jobs it runs at once."""

    lease: float
    """Seconds its leases last without a heartbeat."""

    unready_after: Callable[[], float] | None = None
    """Seconds without a heartbeat after which it is not ready; without, its lease."""

    tables: Callable[[], Sequence[Counting]] = tuple
    """Statements that count the node's tables."""

    leads: Callable[[], bool | None] = lambda: None
    """True if it leads the consumers; ``None``: it has no consumers."""


class Checks:
    """Liveness and readiness checks of a node. They never query the database: the heartbeat already does."""

    def __init__(self, status: NodeStatus) -> None:
        self._status = status
        self._beat_at: float | None = None

    def on_event(self, name: str, facts: dict[str, Any]) -> None:
        """Record the time of the node's last heartbeat."""
        if name == "node.beat" and facts["node"] == self._status.node():
            self._beat_at = time.monotonic()

    def alive(self) -> str | None:
        """Return a problem that only a restart fixes, or ``None``."""
        lag = self._status.loop_lag()
        return f"the event loop has been blocked for {lag:.0f} s" if lag > BLOCKED_TOO_LONG else None

    def ready(self) -> str | None:
        """Return why the node cannot take work now, or ``None``."""
        if not self._status.ready():
            return "the node takes no work: it is starting or draining"
        if self._beat_at is None:
            return "no heartbeat has succeeded yet"
        silent = time.monotonic() - self._beat_at
        lease = self._status.unready_after() if self._status.unready_after else self._status.lease
        if silent > lease:
            return f"no heartbeat has succeeded for {silent:.1f} s, and the lease is {lease:g} s"
        return None


class Health:
    """Serves ``/metrics``, ``/livez`` and ``/readyz`` from :meth:`start` to :meth:`stop`.

    The checks run in the server's threads, so they must not wait for anything. Port 0 takes a free one;
    ``port`` says which. ``note`` is what a ready node has to say all the same.
    """

    def __init__(
        self,
        metrics: Collector,
        *,
        alive: Check,
        ready: Check,
        note: Check = lambda: None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.host = host
        self.port = port
        self._answers: dict[str, Callable[[str], Answer]] = {
            "/metrics": lambda accept: _scrape(metrics, accept),
            "/livez": lambda _accept: _say(alive()),
            "/readyz": lambda _accept: _say(ready(), note()),
        }
        self._server: _Server | None = None

    def start(self) -> None:
        """Start the server, or raise :class:`ConfigError` when the port cannot be opened."""
        if self._server is not None:
            return
        try:
            server = self._server = _Server(self.host, self.port, self._answers)
        except (OSError, OverflowError) as error:
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            why = "it is in use" if taken else str(error)
            raise ConfigError(
                f"cannot serve health and metrics on {self.host} port {self.port}: {why}; choose another, or 0 for any"
            ) from None
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(TURN,), name="howdah-health", daemon=True).start()

    def stop(self) -> None:
        """Stop the server; return when the port is free."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()


Answer = tuple[int, str, bytes]


def _say(wrong: str | None, note: str | None = None) -> Answer:
    if wrong is not None:
        return _text(503, wrong)
    return _text(200, f"ok\n{note}" if note else "ok")


def _text(status: int, text: str) -> Answer:
    return status, "text/plain; charset=utf-8", f"{text}\n".encode()


def _scrape(metrics: Collector, accept: str) -> Answer:
    encode, content_type = choose_encoder(accept)
    return 200, content_type, encode(metrics)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_port = False

    def __init__(self, host: str, port: int, answers: dict[str, Callable[[str], Answer]]) -> None:
        self.answers = answers
        self._open: dict[Any, float] = {}
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # HTTPServer would look up its own name here, and a slow DNS would hold up the start.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._open) >= MOST_CONNECTIONS:
            self.shutdown_request(request)
            return
        self._open[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        oldest = time.monotonic() - LONGEST_REQUEST
        for request, since in list(self._open.items()):
            if since < oldest:
                try:
                    request.shutdown(socket.SHUT_RDWR)
                except OSError:
                    self._open.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a health request from %s broke off", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "howdah"
    sys_version = ""
    timeout = 5.0

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        answer = self.server.answers.get(path)
        if answer is None:
            self._send(*_text(404, f"nothing at {path[:100]!r}; try {', '.join(self.server.answers)}"))
            return
        try:
            status, content_type, body = answer(self.headers.get("accept") or "")
        except Exception:
            log.exception("could not answer %s", path)
            status, content_type, body = _text(500, "failed; the log says why")
        self._send(status, content_type, body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Stay silent: probes come every few seconds."""

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
