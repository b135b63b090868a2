"""Run the whole example on a private PostgreSQL: upload, process, fail, cancel, kill a worker, print the tables."""

from __future__ import annotations

import ast
import asyncio
import gzip
import hashlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import asyncpg

from howdah.postgres.embedded import server as embedded

EXAMPLES = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(EXAMPLES))

from uploads.app import SCHEMA, app  # noqa: E402


def symbols_of(package: str) -> Iterator[list[str | int]]:
    """Yield every class and function of a standard library package: path, line, kind, name."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])
    for file in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                kind = "class" if isinstance(node, ast.ClassDef) else "function"
                yield [f"{package}/{file.name}", node.lineno, kind, node.name]


def index(package: str) -> bytes:
    """Return an upload: one symbol per line, compressed."""
    return gzip.compress("".join(json.dumps(symbol) + "\n" for symbol in symbols_of(package)).encode())


class Application:
    """The uploading part of an application. It only inserts rows and does not use Howdah."""

    def __init__(self, conn: Any, folder: Path) -> None:
        self.conn = conn
        self.folder = folder

    async def upload(self, name: str, content: bytes, *, arrived: bool = True) -> int:
        """Insert an upload; return its id."""
        file = self.folder / f"{name}.jsonl.gz"
        if arrived:
            file.write_bytes(content)
        repository = await self.conn.fetchval("insert into repositories (name) values ($1) returning id", name)
        commit = hashlib.sha1(content).hexdigest()
        number: int = await self.conn.fetchval(
            "insert into uploads (repository_id, commit, file, size) values ($1, $2, $3, $4) returning id",
            repository,
            commit,
            str(file),
            len(content),
        )
        return number

    async def until(self, upload: int, *states: str) -> None:
        """Wait until an upload is in one of these states."""
        async with asyncio.timeout(60):
            while await self.conn.fetchval("select state from uploads where id = $1", upload) not in states:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    @asynccontextmanager
    async def busy(self, upload: int) -> AsyncIterator[None]:
        """Lock the repository of an upload, so that its attempt cannot finish inside the block."""
        conn = await asyncpg.connect(app.database.dsn)
        async with conn.transaction():
            await conn.execute(
                "select from repositories r join uploads u on u.repository_id = r.id where u.id = $1 for update of r",
                upload,
            )
            yield
        await conn.close()


async def kill_a_worker(application: Application) -> int:
    """Kill the worker of an upload, so that it sends no more heartbeats and no outcome."""
    upload = await application.upload("email", index("email"))
    async with application.busy(upload):
        command = [sys.executable, "-m", "howdah", "worker", "-a", "uploads.app:app"]
        worker = await asyncio.create_subprocess_exec(
            *command, cwd=EXAMPLES, env={**os.environ, "HOWDAH_DSN": app.database.dsn}
        )
        await application.until(upload, "processing")
        worker.kill()
        await worker.wait()
    print(f"upload {upload}: its worker is killed")
    return upload


async def main(folder: Path) -> None:
    """Show every outcome of a row, concurrently."""
    await app.migrate()
    conn = await asyncpg.connect(app.database.dsn)
    await conn.execute(SCHEMA.read_text())
    application = Application(conn, folder)
    killed = await kill_a_worker(application)

    working = asyncio.create_task(app.work())
    good = await application.upload("json", index("json"))
    late = await application.upload("logging", index("logging"), arrived=False)
    poison = await application.upload("sqlite3", index("sqlite3")[:200])
    unwanted = await application.upload("unittest", index("unittest"))
    async with application.busy(unwanted):
        await application.until(unwanted, "processing")
        await conn.execute("update uploads set cancel = true where id = $1", unwanted)
        await application.until(late, "errored")
        (folder / "logging.jsonl.gz").write_bytes(index("logging"))
        await application.until(unwanted, "canceled")
    for upload in (killed, good, late, poison):
        await application.until(upload, "completed", "failed")

    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    await show(conn)
    await conn.close()


async def show(conn: Any) -> None:
    """Print the tables."""
    print("\nuploads")
    for row in await conn.fetch("select * from uploads_with_repository order by id"):
        print(f"  {row['id']}  {row['repository_name']:<8}  {row['state']:<9}", end="  ")
        print(f"failures {row['num_failures']}  resets {row['num_resets']}  {row['failure_message'] or ''}".rstrip())
        for entry in map(json.loads, row["execution_logs"] or []):
            summary = f"exit {entry['exitCode']}, {entry['durationMs']} ms  {entry['out'].strip()}"
            print(f"       {entry['key']}: {summary.strip()}")
    print("symbols")
    for row in await conn.fetch(
        "select r.name, count(s) as symbols from repositories r left join symbols s on s.repository_id = r.id"
        " group by r.name order by r.name"
    ):
        print(f"  {row['name']:<8}  {row['symbols']}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    with embedded.start() as server, tempfile.TemporaryDirectory() as folder:
        app.connect_to(server.dsn)
        asyncio.run(main(Path(folder)))
