"""A server given by --dsn: it is used, but no fault is injected into it."""

from __future__ import annotations

from typing import Self
from urllib.parse import parse_qs, urlsplit

from howdah.errors import ConfigError
from howdah_lab.torture.servers.writable import until_writable


class GivenServer:
    """The database of a DSN, which must name a host and a port: everything passes through a line of ours."""

    def __init__(self, dsn: str) -> None:
        parts = urlsplit(dsn)
        if parts.hostname is None or "host" in parse_qs(parts.query):
            raise ConfigError(
                "torture reaches its database through a proxy of its own, so the DSN has to name a host:"
                " postgresql://user:password@127.0.0.1:5432/database"
            )
        self.dsn = self.direct = dsn
        self.address = (parts.hostname, parts.port or 5432)

    async def writable(self, timeout: float) -> float:
        """Wait until it takes writes, at most ``timeout`` seconds; returns the monotonic moment."""
        return await until_writable(self.dsn, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass
