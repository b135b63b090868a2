"""The user at the other end of a loopback connection, as the kernel of Linux knows it."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from pathlib import Path

TABLES = {socket.AF_INET: Path("/proc/net/tcp"), socket.AF_INET6: Path("/proc/net/tcp6")}
ESTABLISHED = "01"


def is_other_user(transport: asyncio.BaseTransport) -> bool:
    """Return whether another user of this machine opened the connection; root and the own user are none.

    Without the tables of Linux the user is not known, and every process of the machine counts as the own user.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in TABLES or not TABLES[sock.family].exists():
        return False
    return _uid(sock.family, transport.get_extra_info("peername"), transport.get_extra_info("sockname")) not in (
        0,
        os.geteuid(),
    )


def _uid(family: int, client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Return the owner of the client's socket; ``None`` if it is closed already.

    A socket that its process has closed has no owner, which the table shows as root; so it must be established.
    """
    wanted = [_entry(family, *client[:2]), _entry(family, *server[:2]), ESTABLISHED]
    for line in TABLES[socket.AddressFamily(family)].read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1:4] == wanted and fields[9] != "0":
            return int(fields[7])
    return None


def _entry(family: int, host: str, port: int) -> str:
    """Return an address as the table has it: words in the byte order of the machine, in hexadecimal.

    >>> import sys
    >>> _entry(socket.AF_INET, "127.0.0.1", 8080) == ("0100007F:1F90" if sys.byteorder == "little" else "7F000001:1F90")
    True
    """
    packed = socket.inet_pton(family, host.partition("%")[0])
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
