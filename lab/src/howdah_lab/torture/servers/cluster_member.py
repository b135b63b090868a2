"""Member: one node of a cluster, a PostgreSQL with the Patroni that looks after it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx
import msgspec

from howdah_lab.torture.servers.child_programs import Folder, Program
from howdah_lab.torture.servers.child_reaper import send
from howdah_lab.torture.servers.ports import HOST

ANSWER_WITHIN = 1.0
STOP_TIMEOUT = 5.0

CLUSTER: dict[str, Any] = {
    "ttl": 20,  # the least Patroni takes, and what an outage lasts at most
    "loop_wait": 2,
    "retry_timeout": 3,
    "maximum_lag_on_failover": 1_048_576,
    "synchronous_mode": True,
    "postgresql": {
        "use_pg_rewind": True,
        "parameters": {"wal_log_hints": "on", "max_connections": 300, "shared_buffers": "128MB"},
    },
}
"""Common configuration of the members, stored in etcd by the first of them."""


class Member:
    """Killed, frozen and stopped as one: Patroni, the postmaster and its backends."""

    def __init__(self, name: str, folder: Folder, *, port: int, rest: int, etcd: int, bin: Path, secret: str) -> None:
        self.name = name
        self.port = port
        self.rest = rest
        self._home = folder.make(name)
        config = self._config(f"{HOST}:{etcd}", bin, secret)
        # JSON is YAML, too.
        path = folder.write(f"{name}.yml", msgspec.json.encode(config).decode())
        self.program = Program(f"{name}-patroni", ["patroni", str(path)], folder)

    async def view(self, client: httpx.AsyncClient) -> list[dict[str, Any]] | None:
        """Return the members of the cluster as it sees them; empty if it does not answer."""
        try:
            answer = await client.get(f"http://{HOST}:{self.rest}/cluster", timeout=ANSWER_WITHIN)
            members: list[dict[str, Any]] = answer.json()["members"]
        except (httpx.HTTPError, ValueError, KeyError):
            return None
        return members

    def stop(self) -> None:
        """End it for good. PostgreSQL goes first of its own accord, so that its shared memory goes too."""
        self.program.thaw()
        postmaster = self._postmaster()
        if postmaster is not None:
            # An immediate shutdown; Patroni is gone, so the server is not started again.
            send([pid for pid in self.program.pids if pid != postmaster and _command(pid) == "patroni"], signal.SIGKILL)
            send([postmaster], signal.SIGQUIT)
            until = time.monotonic() + STOP_TIMEOUT
            while self.program.is_alive and time.monotonic() < until:
                time.sleep(0.02)
        self.program.kill()

    def _postmaster(self) -> int | None:
        with suppress(OSError, ValueError):
            pid = int((self._home / "data" / "postmaster.pid").read_text().partition("\n")[0])
            return pid if pid in self.program.pids else None
        return None

    def _config(self, etcd: str, bin: Path, secret: str) -> dict[str, Any]:
        here = dict.fromkeys(("listen", "connect_address"), f"{HOST}:{self.rest}")
        users = {"superuser": "postgres", "replication": "replicator", "rewind": "rewinder"}
        return {
            "scope": "howdah",
            "name": self.name,
            "restapi": here,
            # By its older protocol: with the newer one, a Patroni that was frozen can no longer change who follows
            # synchronously, and writes wait for ever.
            "etcd": {"hosts": [etcd]},
            "bootstrap": {
                "dcs": CLUSTER,
                "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "data-checksums"],
            },
            "postgresql": {
                "listen": f"{HOST}:{self.port}",
                "connect_address": f"{HOST}:{self.port}",
                "data_dir": str(self._home / "data"),
                "bin_dir": str(bin),
                "pgpass": str(self._home / "pgpass"),
                "authentication": {part: {"username": user, "password": secret} for part, user in users.items()},
                "parameters": {"unix_socket_directories": ""},
                "pg_hba": [
                    f"host all all {HOST}/32 scram-sha-256",
                    f"host replication replicator {HOST}/32 scram-sha-256",
                ],
            },
        }


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((name for word in words[:2] if (name := os.path.basename(word.decode())) == "patroni"), "")
