"""A real PostgreSQL of one's own, for `howdah demo`, `howdah dev` and tests.

The server belongs to a folder, not to a process: a second process shares it, and it stops with the
last process that uses it, however that one ends (see ``guardian``).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from howdah.errors import ConfigError, DatabaseUnreachable
from howdah.postgres.embedded.binaries import Binaries, account, find, reachable
from howdah.postgres.embedded.data_directory import (
    binaries_for,
    check_room,
    check_sockets,
    lock,
    major_of,
    make_password,
    make_sockets,
    prepare,
    sockets_of,
    temporary,
)

__all__ = ["Binaries", "Server", "find", "start"]

START_TIMEOUT = 60.0
"""Seconds for a server to answer; recovery after a crash can take a while."""
GUARDIAN = Path(__file__).with_name("guardian.py")

_open: set[socket.socket] = set()


class ServerEnded(ConfigError):
    """The guardian says that its server could not start, or ended."""


class Server:
    """A running PostgreSQL; it lives until ``stop``, or the end of this process, if no other process uses it."""

    def __init__(self, folder: Path, port: int, sockets: Path, conn: socket.socket) -> None:
        self.folder = folder
        self.major = major_of(folder) or 0
        self.port = port
        self._sockets = sockets
        self._password = (folder / "password").read_text()
        self._conn = conn
        self.dsn = self.dsn_for("postgres")

    def dsn_for(self, database: str) -> str:
        """Return the superuser's DSN for ``database``, over the unix socket."""
        host = quote(str(self._sockets))
        return f"postgresql://postgres:{self._password}@/{quote(database, safe='')}?host={host}&port={self.port}"

    def stop(self) -> None:
        """Say that this process no longer needs the server; returns when it is gone, if it was the last."""
        if self._conn in _open:
            _part(self._conn)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(
    folder: Path | str | None = None,
    *,
    version: int | None = None,
    settings: Mapping[str, str] | None = None,
    port: int | None = None,
) -> Server:
    """Return the server of ``folder``, starting it if it does not run.

    Without a folder the server is new, and its data is gone when it stops. ``settings`` are those of
    postgresql.conf; a server that runs already keeps its own. With ``port`` it also listens on 127.0.0.1.
    As root, the server runs as the user postgres, or nobody.
    """
    home = Path(folder).expanduser().resolve() if folder else None
    user = account(home / "data" if home else None)
    binaries = reachable(binaries_for(home, version), user)
    is_temporary = home is None
    home = prepare(home, user) if home else temporary(user)
    sockets = sockets_of(home)
    plan = {
        "folder": str(home),
        "sockets": str(sockets),
        "bin": str(binaries.folder),
        "major": binaries.major,
        "account": (user.uid, user.gid) if user else None,
        "settings": dict(settings or {}),
        "port": port,
        "temporary": is_temporary,
    }
    try:
        check_room(home)
        conn, actual = _join(home, sockets, plan)
        server = Server(home, actual, sockets, conn)
    except BaseException:
        if is_temporary:
            shutil.rmtree(home, ignore_errors=True)
        raise
    if port not in (None, actual):
        server.stop()
        raise ConfigError(f"the server of {home} already runs without port {port}; stop its other users first")
    return server


def _join(home: Path, sockets: Path, plan: dict[str, Any]) -> tuple[socket.socket, int]:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        conn, started = _connect(sockets / "guardian") if check_sockets(sockets, plan["account"]) else None, False
        if conn is None and (descriptor := lock(home)) is not None:
            with os.fdopen(descriptor):
                conn, started = _start_guardian(home, sockets, plan, descriptor), True
        if conn is not None:
            _open.add(conn)
            try:
                return conn, _await_server(conn, home, sockets, deadline)
            except (ConnectionResetError, ServerEnded) as gone:
                _part(conn)
                if started and isinstance(gone, ServerEnded):
                    raise
                if started:
                    raise DatabaseUnreachable(f"the guardian of {home} ended; see {home / 'log'}") from None
                # It was leaving, or its server had just died, when we came: the next one is ours to start.
            except BaseException:
                _part(conn)
                raise
        time.sleep(0.02)
    raise DatabaseUnreachable(f"{home} is still locked by a server without a guardian; end that server first")


def _connect(path: Path) -> socket.socket | None:
    conn = socket.socket(socket.AF_UNIX)
    try:
        conn.connect(str(path))
    except OSError:
        conn.close()
        return None
    return conn


def _start_guardian(home: Path, sockets: Path, plan: dict[str, Any], descriptor: int) -> socket.socket:
    make_password(home)
    make_sockets(sockets, plan["account"])
    path = sockets / "guardian"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(128)
        # Connected before the guardian runs, so that it never finds itself without a user at first.
        conn = socket.socket(socket.AF_UNIX)
        conn.connect(str(path))
        with suppress(FileNotFoundError):
            (home / "log").replace(home / "log.old")
        log = os.open(home / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        plan = plan | {"lock": descriptor, "listener": listener.fileno()}
        with os.fdopen(log, "wb"):
            subprocess.run(  # noqa: S603 - our own file
                [sys.executable, "-I", "-S", GUARDIAN, json.dumps(plan)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                pass_fds=(descriptor, listener.fileno()),
                start_new_session=True,  # Ctrl-C is for the application, which still has to drain
                cwd="/",
                check=True,
            )
    return conn


def _await_server(conn: socket.socket, home: Path, sockets: Path, deadline: float) -> int:
    conn.settimeout(max(0.1, deadline - time.monotonic()))
    try:
        port = int(_hear(conn)["port"])
        while not answers(sockets / f".s.PGSQL.{port}", (home / "password").read_text()):
            conn.settimeout(0.01)
            with suppress(TimeoutError):
                _hear(conn)
            if time.monotonic() > deadline:
                raise TimeoutError
    except TimeoutError:
        check_room(home)
        raise DatabaseUnreachable(f"PostgreSQL did not answer in {START_TIMEOUT:g} s; see {home / 'log'}") from None
    return port


def _hear(conn: socket.socket) -> dict[str, Any]:
    line = b""
    while not line.endswith(b"\n"):
        heard = conn.recv(1)
        if not heard:
            raise ConnectionResetError
        line += heard
    message: dict[str, Any] = json.loads(line)
    if "error" in message:
        raise ServerEnded(message["error"])
    return message


def _part(conn: socket.socket) -> None:
    _open.discard(conn)
    with conn, suppress(OSError):
        conn.settimeout(15.0)
        conn.shutdown(socket.SHUT_WR)
        # The guardian hangs up on the last user when the server is gone, on all others at once.
        while conn.recv(4096):
            pass


def _forget_in_child() -> None:
    # A fork shares our connections: left open, they would keep the server alive after us.
    for conn in _open:
        conn.close()
    _open.clear()


os.register_at_fork(after_in_child=_forget_in_child)

_PROTOCOL_3 = 196608
_TOO_MANY_CONNECTIONS = b"C53300\0"
_WRONG_PASSWORD = b"C28P01\0"


def answers(path: Path, password: str) -> bool:
    """Return whether the server behind the unix socket ``path`` lets the user postgres in with ``password``.

    Only a login proves that it runs: a pid may be a zombie's or reused, and a socket file may be left over. The
    protocol is written out here because this is synchronous code.
    """
    try:
        with socket.socket(socket.AF_UNIX) as conn:
            conn.settimeout(2.0)
            conn.connect(str(path))
            return _log_in(conn, password)
    except OSError:
        return False


def _log_in(conn: socket.socket, password: str) -> bool:
    parameters = b"user\0postgres\0database\0postgres\0\0"
    conn.sendall(struct.pack("!ii", 8 + len(parameters), _PROTOCOL_3) + parameters)
    first = f"n=,r={secrets.token_hex(12)}"
    while True:
        match _receive(conn):
            case b"R", body if body[:4] == b"\0\0\0\x0a":
                reply = f"n,,{first}".encode()
                _send(conn, b"SCRAM-SHA-256\0" + struct.pack("!i", len(reply)) + reply)
            case b"R", body if body[:4] == b"\0\0\0\x0b":
                _send(conn, _prove(first, body[4:].decode(), password))
            case b"Z", _:
                conn.sendall(b"X" + struct.pack("!i", 4))
                return True
            case b"E", body if _WRONG_PASSWORD in body:
                raise ConfigError("the password kept in the folder is not that of the server; use a new folder")
            case b"E", body:
                # A full server is a running one; every other refusal means it is not ready yet.
                return _TOO_MANY_CONNECTIONS in body


def _prove(first: str, challenge: str, password: str) -> bytes:
    # SCRAM-SHA-256 (RFC 5802, RFC 7677) without channel binding.
    facts = dict(part.split("=", 1) for part in challenge.split(","))
    final = f"c=biws,r={facts['r']}"
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(facts["s"]), int(facts["i"]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), f"{first},{challenge},{final}".encode(), "sha256")
    proof = bytes(left ^ right for left, right in zip(key, signature, strict=True))
    return f"{final},p={base64.b64encode(proof).decode()}".encode()


def _send(conn: socket.socket, body: bytes) -> None:
    conn.sendall(b"p" + struct.pack("!i", 4 + len(body)) + body)


def _receive(conn: socket.socket) -> tuple[bytes, bytes]:
    head = conn.recv(5, socket.MSG_WAITALL)
    if len(head) < 5:
        raise ConnectionError("the server closed the connection")
    length = int.from_bytes(head[1:], "big") - 4
    return head[:1], conn.recv(length, socket.MSG_WAITALL) if length else b""
