"""A PgBouncer of one's own, in transaction mode unless told otherwise."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

CONFIG = """
[databases]
* = host={host} port={port} user={user} password='{password}'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
max_client_conn = 500
default_pool_size = 40
logfile = {folder}/log
"""


class Pooler:
    """Runs while its context lasts."""

    def __init__(self, dsn: str, *, mode: str = "transaction") -> None:
        self._dsn = urlsplit(dsn)
        self._mode = mode

    def __enter__(self) -> Self:
        program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
        if not os.path.exists(program):
            raise RuntimeError("pgbouncer is missing; apt install pgbouncer")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._folder = Path(tempfile.mkdtemp(prefix="howdah-bouncer-", dir="/var/tmp"))
        account = "postgres" if os.getuid() == 0 else None
        query = parse_qs(self._dsn.query)
        (self._folder / "ini").write_text(
            CONFIG.format(
                host=query["host"][0] if "host" in query else self._dsn.hostname,
                port=query.get("port", [self._dsn.port or 5432])[0],
                user=self._dsn.username,
                password=unquote(self._dsn.password or ""),
                listen=self.port,
                folder=self._folder,
                mode=self._mode,
            )
        )
        if account:
            shutil.chown(self._folder, account)
            shutil.chown(self._folder / "ini", account)
        self._process = subprocess.Popen(
            [program, str(self._folder / "ini")], user=account, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 10
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
                return self
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"pgbouncer did not start: {(self._folder / 'log').read_text()}")

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def dsn_for(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"
