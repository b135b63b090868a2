"""Reserved ports, which stay free while no server listens on them."""

from __future__ import annotations

import asyncio
import random
import socket
from pathlib import Path

HOST = "127.0.0.1"
LOWEST = 15_000
ANSWER_TIMEOUT = 1.0
"""Seconds."""
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Return ports that no server listens on, and that the system does not give to outgoing connections.

    A client that keeps calling a server that is down would otherwise be given that server's port one day, and talk to
    itself.
    """
    found: list[int] = []
    for port in random.sample(range(LOWEST, _first_ephemeral()), 1000):
        if _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"no {count} free ports between {LOWEST} and {_first_ephemeral()}; end what listens on them")


def _first_ephemeral() -> int:
    try:
        first = int(EPHEMERAL.read_text().split()[0])
    except OSError:
        return 32_768
    return first if first > LOWEST + 1000 else 32_768


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


async def answers(port: int) -> bool:
    """Return whether a control plane on this machine answers at ``port``; it listens before it has started."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT):
            reader, writer = await asyncio.open_connection(HOST, port)
            try:
                writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                return (await reader.read(5)) == b"HTTP/"
            finally:
                writer.transport.abort()
    except OSError:
        return False
