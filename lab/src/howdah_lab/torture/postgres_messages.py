"""Parser of a client's PostgreSQL messages: the role of its connection and the statements of its transaction."""

from __future__ import annotations

import struct

STARTUP, REQUEST_TLS = 196_608, 80_877_103
LARGEST_STARTUP = 10_000
"""Bytes; what announces more is no client of PostgreSQL."""
SHOWN = 60
"""Characters that are kept of a statement: its first line tells which one it is."""


class ClientMessages:
    """The messages of one client, in whatever pieces they arrive."""

    def __init__(self) -> None:
        self.role = ""
        """Its application name, without ``howdah``."""
        self._rest = bytearray()
        self._begun = False
        self._foreign = False
        self._statements: dict[bytes, str] = {}
        self._executed: set[str] = set()

    def feed(self, data: bytes) -> None:
        """Take what the client sent."""
        if self._foreign:
            return
        self._rest += data
        while (message := self._next()) is not None:
            if self._begun:
                self._note(message[:1], message[5:])
            else:
                self._begin(message)

    def executed(self, beginning: str) -> bool:
        """Return whether the client has run a statement that begins like this since its connection was idle last."""
        return any(statement.startswith(beginning) for statement in self._executed)

    def end_transaction(self) -> None:
        """The transaction is over."""
        self._executed.clear()

    def _next(self) -> bytes | None:
        """The next whole message: its kind, except for the first ones, its length and its content."""
        head = 1 if self._begun else 0
        if self._foreign or len(self._rest) < head + 4:
            return None
        length = struct.unpack_from("!I", self._rest, head)[0]
        if length < 4 or (not self._begun and length > LARGEST_STARTUP):
            self._foreign = True  # HTTP, or encrypted
            return None
        if len(self._rest) < head + length:
            return None
        message = bytes(self._rest[: head + length])
        del self._rest[: head + length]
        return message

    def _begin(self, message: bytes) -> None:
        code = struct.unpack_from("!I", message, 4)[0] if len(message) >= 8 else 0
        if code == REQUEST_TLS:  # refused by the servers here; the startup message comes next
            return
        self._begun = True
        self._foreign = code != STARTUP
        words = message[8:].split(b"\0")
        settings = dict(zip(words[::2], words[1::2], strict=False))
        self.role = settings.get(b"application_name", b"").decode(errors="replace").removeprefix("howdah ")

    def _note(self, kind: bytes, content: bytes) -> None:
        if kind == b"P":  # Parse
            name, _, rest = content.partition(b"\0")
            self._statements[name] = _shown(rest)
        elif kind == b"B":  # Bind
            name = content.split(b"\0", 2)[1]
            self._executed.add(self._statements.get(name, ""))
        elif kind == b"Q":
            self._executed.add(_shown(content))
        elif kind == b"C" and content[:1] == b"S":  # Close
            self._statements.pop(content[1:].rstrip(b"\0"), None)


def _shown(statement: bytes) -> str:
    return statement[:SHOWN].partition(b"\0")[0].decode(errors="replace")
