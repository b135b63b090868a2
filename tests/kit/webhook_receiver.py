"""A receiver of webhooks: a real HTTP server on this machine that remembers what it was sent, and answers as told."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SECRET = "a secret of more than sixteen"
Reply = tuple[int, Mapping[str, str]]


@dataclass(frozen=True)
class ReceivedRequest:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """Answers 200, or what ``replies`` says, one after the other; the last stays. ``heard`` is what came."""

    def __init__(self, *replies: int | Reply, host: str = "127.0.0.1", port: int = 0, cert: Path | None = None) -> None:
        self.heard: list[ReceivedRequest] = []
        self.replies: list[int | Reply] = list(replies) or [200]
        self.hold = threading.Event()
        """Cleared: nobody is answered."""
        self.hold.set()
        self.pace = 0.0
        """Seconds every answer takes."""
        self._server = ThreadingHTTPServer((host, port), self._handler())
        self._server.daemon_threads = True
        if cert is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(cert)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks?key=in-the-url"

    def events(self) -> list[str]:
        return [letter.content["event"] for letter in self.heard]

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def _handler(receiver) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = self.rfile.read(length)
                if len(body) < length:  # its sender died while it spoke: nobody was told anything
                    self.close_connection = True
                    return
                receiver.heard.append(ReceivedRequest(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                receiver.hold.wait(60)
                time.sleep(receiver.pace)
                reply = receiver.replies.pop(0) if len(receiver.replies) > 1 else receiver.replies[0]
                status, headers = (reply, {}) if isinstance(reply, int) else reply
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler
