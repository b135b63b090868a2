"""`howdah serve` and its workers as processes, for tests that do not wait in a loop."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg

from howdah.control_plane.tokens import Tokens
from howdah.postgres.database import Database, Session
from howdah_lab.torture.servers.ports import free_ports
from kit.command import COMMAND_TIMEOUT, Command, eventually
from kit.roles import fleet, owner

QUICK = ("--heartbeat", "500ms", "--offline-after", "3s")


def make_token(database: Database, *scopes: str) -> str:
    """A token for these scopes."""

    async def make() -> str:
        session = Session(owner(database), "test")
        try:
            return (await Tokens(owner(database), session).create("test", scopes))[0]
        finally:
            await session.close()

    return asyncio.run(make())


class ControlPlaneProcess(Command):
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

    eventually(there, why=lambda: str(found))
    return found


class ControlPlaneProcesses:
    """A control plane, a token for it, and workers."""

    def __init__(self, database: Database, direct: Database, stack: ExitStack, notes: Path) -> None:
        self._database = database
        self._stack = stack
        self.notes = notes
        self.token = make_token(database, "work", "read", "admin")
        self.conn = stack.enter_context(psycopg.connect(direct.dsn, autocommit=True))
        self.control = self.serve()
        self.url = self.control.url

    def serve(self, *words: str, port: int = 0) -> ControlPlaneProcess:
        return self._stack.enter_context(ControlPlaneProcess(*QUICK, *words, port=port, dsn=fleet(self._database).dsn))

    def worker(self, *words: str, server: str | None = None, **environment: str) -> Command:
        """One that knows no database at all."""
        given = {"HOWDAH_TOKEN": self.token, "ERRANDS": str(self.notes), **environment}
        command = ("worker", "-a", "kit.remote_app:app", "--server", server or self.url, *words)
        return self._stack.enter_context(Command(*command, **given))

    def enqueue(self, kind: str, **args: Any) -> int:
        made = self.conn.execute("select id from howdah.enqueue(%s, %s::json)", (kind, json.dumps(args)))
        return int(made.fetchone()[0])  # type: ignore[index]

    def job(self, id: int, columns: str = "state, attempt") -> Any:
        found = self.conn.execute(f"select {columns} from howdah.jobs where id = %s", (id,)).fetchone()  # type: ignore[arg-type]
        return found if found is None or len(found) > 1 else found[0]

    def becomes(self, id: int, state: str, seconds: float = COMMAND_TIMEOUT) -> None:
        eventually(lambda: self.job(id)[0] == state, seconds, lambda: str(self.job(id)))

    def begins(self, id: int) -> None:
        """Wait until its handler runs; that it is claimed is not enough."""
        eventually(lambda: f"begin {id}" in self.lines)

    @property
    def lines(self) -> list[str]:
        """What handlers noted."""
        return self.notes.read_text().splitlines() if self.notes.exists() else []


def page_text(url: str, path: str) -> str | None:
    """What a page says; ``None``: nobody answers."""
    try:
        return str(ask(url, path)[1])
    except OSError:
        return None


def free_port() -> int:
    """A port that no process listens on, and that no outgoing connection is given."""
    return free_ports(1)[0]
