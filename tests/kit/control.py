"""`howdah serve` and its workers as processes, for tests that do not wait in a loop."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.error
import urllib.request
from typing import Any

from howdah.fleet.tokens import Tokens
from howdah.pg.database import Database, Session
from kit.command import Command, eventually

QUICK = ("--heartbeat", "500ms", "--offline-after", "3s")


def make_token(database: Database, *scopes: str) -> str:
    """A token for these scopes."""

    async def make() -> str:
        session = Session(database, "test")
        try:
            return (await Tokens(database, session).create("test", scopes))[0]
        finally:
            await session.close()

    return asyncio.run(make())


class Control(Command):
    """A control plane; ``url`` is where it listens."""

    def __init__(self, *words: str, port: int = 0, **more: Any) -> None:
        super().__init__("serve", "--port", str(port), *words, **more)

    @property
    def url(self) -> str:
        """Where it listens; waits until it does."""
        self.says("the control plane listens on ")
        found = re.search(r"listens on (https?://[\w.\[\]:]+)", self.output)
        assert found is not None
        return found[1].rstrip('"')

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


def ask(url: str, path: str, token: str | None = None, body: Any = None, method: str | None = None) -> tuple[int, Any]:
    """Status and body of one request."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url + path, data=data, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
            return answer.status, json.loads(text) if text.startswith(("{", "[")) else text
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def workers(url: str, token: str, *states: str) -> list[Any]:
    """The workers a control plane knows, once they are in these states, newest first."""
    found: list[Any] = []

    def there() -> bool:
        found[:] = ask(url, "/workers", token)[1]["workers"]
        return [each["status"] for each in found] == list(states)

    eventually(there, 20, lambda: str(found))
    return found
