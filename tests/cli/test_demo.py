"""`howdah demo` and `howdah dev` as real processes, with a PostgreSQL of their own."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPCookieProcessor, build_opener

import psycopg
import pytest

from howdah.postgres.database import Database
from kit.command import Command, alive, children, eventually
from kit.roles import owner

FIGURE = re.compile(r"^  (\w+) +([\d,]+)  ", re.MULTILINE)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the user the server runs as can reach when the tests run as root.

    Not one of pytest's: each run of pytest closes the folder they are all in to everybody else.
    """
    directory = Path(tempfile.mkdtemp(prefix="howdah-test-", dir="/var/tmp"))
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory)


def figures(output: str) -> dict[str, int]:
    return {name: int(number.replace(",", "")) for name, number in FIGURE.findall(output)}


def test_the_demo_ends_with_balanced_books() -> None:
    with Command("demo", "--seconds", "5") as demo:
        assert demo.ends(60) == 0, demo.output

        found = figures(demo.output)
        assert found["lost"] == found["doubled"] == found["astray"] == 0
        assert found["enqueued"] == found["done"] + found["failed"] + found["ahead"]
        assert found["done"] > 500
        assert found["retried"] > 0
        assert found["snoozed"] > 0
        assert found["events"] > 1000
        assert found["rows"] > 0
        assert "order_view has 0 of them before it" in demo.output
        assert f"{found['failed']} on purpose" in demo.output
        assert re.search(r"^ +[45]s  enqueued.*  log [\d,]{5,}  lag \d", demo.output, re.MULTILINE)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_demo_with_its_summary_and_nothing_is_left(number: signal.Signals) -> None:
    with Command("demo") as demo:
        eventually(lambda: demo.output.count("s  enqueued") >= 3, 30, why=lambda: demo.output)
        family = family_of(demo)
        assert len(family) >= 2
        demo.send(number)

        assert demo.ends(20) == 0, demo.output
        found = figures(demo.output)
        assert found["lost"] == found["astray"] == 0
        assert not any(map(alive, family))


def test_a_killed_demo_leaves_nothing() -> None:
    with Command("demo") as demo:
        demo.says("s  enqueued", 30)
        family = family_of(demo)
        demo.process.kill()

        eventually(lambda: not any(map(alive, family)), 5)


def test_the_demo_leaves_a_database_it_was_given_as_it_was(database: Database, direct: Database) -> None:
    with Command("demo", "--seconds", "1", "--dsn", owner(database).dsn) as demo:
        assert demo.ends(30) == 0, demo.output

    with psycopg.connect(direct.dsn) as conn:
        schemas = conn.execute("select nspname from pg_namespace where nspname like '%demo%'").fetchall()
        assert schemas == []
        assert conn.execute("select count(*) from howdah.job").fetchone() == (0,)


def test_dev_runs_an_app_with_a_database_of_its_own(folder: Path) -> None:
    program = (
        "from howdah import Howdah\napp = Howdah()\n@app.task\nasync def greet(name: str) -> str:\n    return {!r}\n"
    )
    (folder / "own.py").write_text(program.format("hello"))

    with Command("dev", "-a", "own:app", folder=folder) as dev:
        dev.says("starts", 30)
        note = folder / ".howdah" / "dsn"
        assert note.stat().st_mode & 0o777 == 0o600
        dsn = note.read_text()
        assert dsn not in dev.output
        assert ran(dsn) == "hello"

        (folder / "own.py").write_text(program.format("good day"))
        dev.says("changed; restarting")
        eventually(lambda: dev.output.count("starts: ") == 2, why=lambda: dev.output)
        assert ran(dsn) == "good day"

        dev.send(signal.SIGINT)
        assert dev.ends() == 0, dev.output
        assert not note.exists()


def test_dev_uses_the_database_it_is_given(database: Database, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("from howdah import Howdah\napp = Howdah()\n@app.task\nasync def greet(): ...\n")

    with Command("dev", "-a", "own:app", "--schema", "fresh", dsn=database.dsn, folder=tmp_path) as dev:
        dev.says("starts", 30)
        assert not (tmp_path / ".howdah").exists()
        dev.send(signal.SIGTERM)
        assert dev.ends() == 0, dev.output


def test_the_dashboard_of_dev_has_its_port_before_it_starts_and_while_it_restarts(
    database: Database, tmp_path: Path
) -> None:
    program = "from howdah import Howdah\napp = Howdah()\n@app.task\nasync def greet(): ...\n"
    (tmp_path / "own.py").write_text(program)

    with Command("dev", "-a", "own:app", "--schema", "fresh", dsn=database.dsn, folder=tmp_path) as dev:
        dev.says("Ctrl-C", 30)
        found = re.search(r"http://\S+", dev.output)
        assert found
        assert shown(found[0])
        (tmp_path / "own.py").write_text(program + "\n")
        dev.says("changed; restarting")
        while dev.output.count("starts: ") < 2:
            socket.create_connection(("127.0.0.1", urlsplit(found[0]).port)).close()
            time.sleep(0.02)
        eventually(lambda: shown(found[0]))

        dev.send(signal.SIGTERM)
        assert dev.ends() == 0, dev.output


def shown(address: str) -> bool:
    """Whether the link leads to a page; a server that stops may reset what it has accepted."""
    browser = build_opener(HTTPCookieProcessor())
    try:
        return bool(browser.open(address, timeout=60).status == 200)
    except ConnectionResetError:
        return False


def ran(dsn: str) -> Any:
    """The result of one job, once it is done."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        [id] = conn.execute("select id from howdah.enqueue('greet', '{\"name\": \"you\"}')").fetchone() or [0]
        query = "select result from howdah.jobs where id = %s and state = 'done'"
        return eventually(lambda: conn.execute(query, (id,)).fetchone())[0]


def family_of(command: Command) -> list[int]:
    return [pid for child in command.children for pid in (child, *children(child))]
