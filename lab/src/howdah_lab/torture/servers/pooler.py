"""PgBouncer in front of a server."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from typing import Literal, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

from howdah.errors import DatabaseUnreachable
from howdah_lab.torture.servers.child_programs import Folder, Program, look_for
from howdah_lab.torture.servers.ports import HOST, free_ports

Mode = Literal["session", "transaction"]
START_TIMEOUT = 30.0

CONFIG = """
[databases]
* = host={host} port={port} user={user} password='{password}'
[pgbouncer]
listen_addr = {listen}
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
max_client_conn = 500
default_pool_size = {size}
server_login_retry = 1
"""


class Pooler:
    """A PgBouncer of one's own that accepts every client as the user of ``dsn``; runs while its block lasts."""

    def __init__(self, dsn: str, *, mode: Mode = "transaction", size: int = 40) -> None:
        self._server = urlsplit(dsn)
        self._mode = mode
        self._size = size
        self._stack = ExitStack()
        self._program: Program
        self.port = 0

    @staticmethod
    def missing() -> str | None:
        """Return what this machine lacks to run it, and how to install it."""
        return None if look_for("pgbouncer") else "pgbouncer is missing; apt-get install -y pgbouncer"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = Folder()
            stack.callback(folder.remove)
            [self.port] = free_ports(1)
            self._program = Program("pgbouncer", ["pgbouncer", str(folder.write("ini", self._config()))], folder)
            stack.callback(self._program.kill)
            self.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """Start it; returns when it answers."""
        self._program.start()
        until = time.monotonic() + START_TIMEOUT
        while True:
            try:
                return socket.create_connection((HOST, self.port), 1.0).close()
            except OSError as error:
                if time.monotonic() > until or not self._program.is_alive:
                    raise DatabaseUnreachable(f"pgbouncer did not start: {self._program.say()}") from error
            time.sleep(0.02)

    def kill(self) -> None:
        """End it at once, and with it every connection through it."""
        self._program.kill()

    def dsn_for(self, database: str) -> str:
        """The DSN of ``database`` through it."""
        return f"postgresql://postgres@{HOST}:{self.port}/{quote(database, safe='')}"

    def _config(self) -> str:
        query = parse_qs(self._server.query)
        return CONFIG.format(
            host=query["host"][0] if "host" in query else self._server.hostname,
            port=query.get("port", [self._server.port or 5432])[0],
            user=self._server.username,
            password=unquote(self._server.password or ""),
            listen=HOST,
            listen_port=self.port,
            mode=self._mode,
            size=self._size,
        )
