"""Find out whether an embedded PostgreSQL is running, by logging in.

A pid proves nothing (it may be a zombie's, or reused), nor does a socket file. Spoken by hand because the
question is asked from synchronous code, before there is a server to make a pool for.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import struct
from pathlib import Path

from howdah.errors import ConfigError

_PROTOCOL_3 = 196608
_TOO_MANY_CONNECTIONS = b"C53300\0"
_WRONG_PASSWORD = b"C28P01\0"


def answers(path: Path, password: str) -> bool:
    """Return whether the server behind the unix socket ``path`` lets the user postgres in with ``password``."""
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
