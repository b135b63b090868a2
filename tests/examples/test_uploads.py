"""The uploads: a table of the application as a queue, with everything that can become of a row."""

from __future__ import annotations

import asyncio
import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from howdah.table.check import examine
from howdah.testing import drain
from kit.node import eventually, node

pytestmark = pytest.mark.anyio

UPLOADS = Path(__file__).parents[2] / "examples" / "uploads"
SYMBOLS = [["shop/cart.py", 3, "class", "Cart"], ["shop/cart.py", 9, "function", "total"]]


@pytest.fixture
async def example(direct, conn, monkeypatch):
    """The module of the example, with an app on the fresh database."""
    spec = importlib.util.spec_from_file_location("uploads_app", UPLOADS / "app.py")
    example = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "uploads_app", example)
    spec.loader.exec_module(example)
    example.app.connect_to(direct.dsn)
    await conn.execute(example.SCHEMA.read_text())
    await conn.execute("insert into repositories (name) values ('shop'), ('depot')")
    return example


@pytest.fixture
async def upload(conn, tmp_path):
    """Upload symbols, or any bytes, for a repository."""

    async def upload(content=SYMBOLS, *, repository=1, commit="a" * 40, size=None):
        if not isinstance(content, bytes):
            content = gzip.compress("".join(json.dumps(symbol) + "\n" for symbol in content).encode())
        number = await conn.fetchval("select count(*) + 1 from uploads")
        file = tmp_path / f"{number}.jsonl.gz"
        file.write_bytes(content)
        return await conn.fetchval(
            "insert into uploads (repository_id, commit, file, size) values ($1, $2, $3, $4) returning id",
            repository,
            commit,
            str(file),
            len(content) if size is None else size,
        )

    return upload


async def row(conn, id):
    return await conn.fetchrow("select * from uploads where id = $1", id)


async def symbols(conn):
    return [list(each) for each in await conn.fetch("select path, line, kind, name from symbols order by path, line")]


async def test_an_upload_becomes_symbols(example, upload, conn, tmp_path):
    id = await upload()
    await drain(example.app)

    done = await row(conn, id)
    assert (done["state"], done["num_failures"], done["failure_message"]) == ("completed", 0, None)
    assert await symbols(conn) == SYMBOLS
    assert await conn.fetchval("select indexed_commit from repositories where id = 1") == "a" * 40
    gunzip, load = [json.loads(entry) for entry in done["execution_logs"]]
    assert gunzip["command"][:2] == ["gzip", "--decompress"]
    assert (gunzip["exitCode"], load["exitCode"], load["out"]) == (0, 0, "2 symbols\n")
    assert [file.name for file in tmp_path.iterdir()] == ["1.jsonl.gz"], "what was unpacked is gone"


async def test_a_later_upload_replaces_the_symbols_of_its_repository_only(example, upload, conn):
    await upload()
    await upload([["depot/shelf.py", 1, "class", "Shelf"]], repository=2)
    await drain(example.app)
    await upload([["shop/till.py", 5, "class", "Till"]], commit="b" * 40)
    await drain(example.app)

    assert await symbols(conn) == [["depot/shelf.py", 1, "class", "Shelf"], ["shop/till.py", 5, "class", "Till"]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no gzip", "Poison: 2.jsonl.gz cannot be unpacked"),
        (gzip.compress(b"x" * 1000)[:-9], "Poison: 2.jsonl.gz cannot be unpacked"),
        ([*SYMBOLS, ["shop/cart.py", "nine", "function", "x"]], "Poison: line 3 is no symbol: Expected `int`"),
    ],
    ids=["no gzip", "cut short", "no symbol"],
)
async def test_a_broken_upload_is_poison_and_leaves_the_symbols_alone(example, upload, conn, content, message):
    await upload()
    await drain(example.app)
    id = await upload(content, commit="b" * 40)
    await drain(example.app, raise_failures=False)

    failed = await row(conn, id)
    assert (failed["state"], failed["num_failures"]) == ("failed", 1)
    assert failed["failure_message"].startswith(message)
    assert await symbols(conn) == SYMBOLS
    assert await conn.fetchval("select indexed_commit from repositories where id = 1") == "a" * 40


async def test_a_file_that_is_late_is_tried_again(example, upload, conn, tmp_path):
    id = await upload()
    file = (tmp_path / "1.jsonl.gz").rename(tmp_path / "late")
    async with node(example.app):
        await eventually(lambda: is_in(conn, id, "errored"))
        assert (await row(conn, id))["failure_message"] == "FileNotFoundError: 1.jsonl.gz is not here yet"
        file.rename(tmp_path / "1.jsonl.gz")
        await eventually(lambda: is_in(conn, id, "completed"))
    assert (await row(conn, id))["num_failures"] == 1


async def is_in(conn, id, state):
    return (await row(conn, id))["state"] == state


async def test_nothing_is_claimed_while_the_disk_is_full(example, upload, conn, monkeypatch):
    id = await upload()
    monkeypatch.setattr(example, "ROOM_NEEDED", 10**18)
    await drain(example.app)

    assert (await row(conn, id))["state"] == "queued"


async def test_uploads_unpacked_at_once_keep_within_the_budget(example, upload, conn):
    await conn.execute("insert into repositories (name) select 'r' || n from generate_series(1, 3) n")
    ids = [await upload(repository=repository, size=400_000) for repository in (3, 4, 5)]
    async with conn.transaction():
        await conn.execute("select from repositories for update")
        working = asyncio.create_task(drain(example.app))
        other = await example.app.database.connect("test")
        await eventually(lambda: two(other))
        await asyncio.sleep(0.3)  # the third would be too much
        assert await processing(other) == 2
        await other.close()
    await working
    assert [(await row(conn, id))["state"] for id in ids] == ["completed"] * 3


async def two(conn):
    return await processing(conn) == 2


async def processing(conn):
    return await conn.fetchval("select count(*) from uploads where state = 'processing'")


async def test_the_table_lacks_nothing(example, direct):
    report = await examine(direct, example.uploads.options)

    assert report.findings == []
    assert "uploads_waiting" in report.reads


def test_the_whole_thing_runs_in_one_command(tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HOWDAH_", "PG"))}
    ran = subprocess.run(
        [sys.executable, UPLOADS / "run.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100
    )

    assert ran.returncode == 0, ran.stderr
    output, shown = ran.stdout[: ran.stdout.index("uploads\n")], ran.stdout[ran.stdout.index("uploads\n") :]
    for line in ("upload 1: its worker is killed", "upload 3: retry", "upload 4: poison", "upload 5: cancelled"):
        assert line in output
    assert re.fullmatch(
        r"""uploads
  1  email     completed  failures 0  resets 1
       gunzip: exit 0, \d+ ms
       load: exit 0, \d+ ms  \d+ symbols
  2  json      completed  failures 0  resets 0
       gunzip: exit 0, \d+ ms
       load: exit 0, \d+ ms  \d+ symbols
  3  logging   completed  failures 1  resets 0
       gunzip: exit 0, \d+ ms
       load: exit 0, \d+ ms  \d+ symbols
  4  sqlite3   failed     failures 1  resets 0  Poison: sqlite3.jsonl.gz cannot be unpacked
       gunzip: exit 1, \d+ ms  gzip: .*: unexpected end of file
  5  unittest  canceled   failures 0  resets 0  Cancelled: cancelled while running
       gunzip: exit 0, \d+ ms
symbols
  email     [1-9]\d*
  json      [1-9]\d*
  logging   [1-9]\d*
  sqlite3   0
  unittest  0
""",
        shown,
    ), shown
