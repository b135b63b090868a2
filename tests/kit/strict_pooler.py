"""Stands in for a pooler: refuses startup parameters as PgBouncer does, and passes everything else on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, quote, urlsplit

TAKEN = {"user", "database", "client_encoding", "datestyle", "timezone", "application_name"}


class StrictPooler:
    """A socket in ``folder`` that leads to the server of ``dsn``; runs while its block lasts."""

    def __init__(self, dsn: str, folder: Path) -> None:
        query = parse_qs(urlsplit(dsn).query)
        self._server = f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}"
        self._folder = folder
        self._parts = urlsplit(dsn)
        self._talks: set[asyncio.Task[None]] = set()

    @property
    def dsn(self) -> str:
        return self._parts._replace(query=f"host={quote(str(self._folder))}&port=5432").geturl()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_unix_server(self._talk, self._folder / ".s.PGSQL.5432")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._pass(reader, writer)
        finally:
            writer.close()
            self._talks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readexactly(4)
        body = await reader.readexactly(int.from_bytes(head, "big") - 4)
        names = body[4:].split(b"\0")[0:-2:2] if int.from_bytes(body[:4], "big") == 196608 else []
        for name in names:
            if name.decode().lower() not in TAKEN:
                error_response = b"SFATAL\0C08P01\0Munsupported startup parameter: " + name + b"\0\0"
                writer.write(b"E" + (len(error_response) + 4).to_bytes(4, "big") + error_response)
                await writer.drain()
                return
        from_server, to_server = await asyncio.open_unix_connection(self._server)
        try:
            to_server.write(head + body)
            await asyncio.wait(
                [asyncio.create_task(_pump(reader, to_server)), asyncio.create_task(_pump(from_server, writer))],
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            to_server.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
