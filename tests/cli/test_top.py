"""`howdah top` at a real terminal, beside a real node; and where there is no terminal."""

from __future__ import annotations

import doctest
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from howdah.cli import top_view as frame
from howdah.postgres.database import Database
from howdah.table import ddl
from howdah.table.options import TableOptions
from kit.command import Command, Jobs, eventually
from kit.terminal import ENTER, LEAVE, Terminal

APP = """
import asyncio
from howdah import Howdah, progress

app = Howdah()
uploads = app.table("uploads")

@uploads.handler
async def keep(upload) -> None: ...

@app.task(queue="long")
async def render(seconds: float) -> None:
    progress(0.42, "page 5 of 12")
    await asyncio.sleep(seconds)

@app.task(queue="quick")
async def greet(seconds: float) -> None: ...

@app.consumer("View")
async def view(event) -> None: ...
"""


@pytest.fixture
def jobs(direct: Database) -> Iterator[Jobs]:
    jobs = Jobs(direct.dsn)
    yield jobs
    jobs.close()


@pytest.fixture
def shop(nowhere: Path, direct: Database, jobs: Jobs) -> Path:
    """A folder with an app, whose table exists."""
    (nowhere / "own.py").write_text(APP)
    for statement in ddl.create(TableOptions(table="uploads")):
        jobs.run(statement)
    return nowhere


def test_a_node_at_work_until_q(shop: Path, direct: Database, jobs: Jobs) -> None:
    jobs.run("select howdah.enqueue('render', '{\"seconds\": 600}', queue => 'long')")
    jobs.run("select count(howdah.enqueue('greet', '{\"seconds\": 0}', queue => 'quick')) from generate_series(1, 200)")
    jobs.run("select howdah.enqueue('nobody', queue => 'waiting') from generate_series(1, 3)")
    jobs.run("select howdah.append('Order-1', '{\"type\": \"Placed\"}')")

    with (
        Command("worker", "-a", "own", dsn=direct.dsn, folder=shop) as worker,
        Terminal("top", "--every", "0.2s", dsn=direct.dsn) as top,
    ):
        before = top.modes
        worker.says("starts")
        top.shows("42% page 5 of 12")
        top.shows("View")
        top.shows(" busy  ")
        eventually(
            lambda: cells(top, "quick")[:3] == ["0", "0", "0"] and float(cells(top, "quick")[4]) > 0,
            30,
            lambda: "\n".join(top.screen),
        )
        screen = top.screen
        drawn = top.frames
        eventually(lambda: top.frames > drawn + 3, 30)
        top.type("xyz")
        top.type("q")
        assert top.ends() == 0
        after, output = top.modes, top.output
        worker.send(signal.SIGKILL)

    head = [line for line in screen if line][1]
    assert re.match(r"3 queued  0 scheduled  1 running  [\d.]+ done/s", head)
    assert ["waiting", "3", "0", "0"] in [line.split()[:4] for line in screen]
    assert any(re.search(r"\d+ +\S+:\d+ +busy +1/50 ", line) for line in screen)
    assert any(re.search(r"\d+ +render +long +1 +\S+:\d+ +\d+s +42% page 5 of 12", line) for line in screen)
    assert any(re.search(r"View +running +0 +0s +0", line) for line in screen)
    assert output.startswith(ENTER)
    assert output.rstrip().endswith(LEAVE)
    assert "xyz" not in output
    assert after == before


def cells(top: Terminal, name: str) -> list[str]:
    """The figures of a queue."""
    line = next((line for line in top.screen if line.startswith(f"{name} ")), "")
    return re.sub(r"[▁-█]", " ", line).split()[1:] or ["0"] * 6


def test_a_terminal_that_changes_its_size(direct: Database, jobs: Jobs) -> None:
    jobs.run("select howdah.enqueue('send', queue => 'queue ' || i) from generate_series(1, 50) i")
    jobs.run("insert into howdah.node (name) select 'node-' || i from generate_series(1, 50) i")

    with Terminal("top", "--every", "1h", dsn=direct.dsn, size=(150, 60)) as top:
        wide = top.shows("failed/s")
        top.resize(24, 9)
        eventually(lambda: "failed/s" not in "".join(top.screen), 30, lambda: top.output[-3000:])
        narrow = top.screen
        top.resize(1, 1)
        eventually(lambda: max(map(len, top.screen)) <= 1, 30, lambda: top.output[-3000:])
        top.resize(150, 200)
        eventually(lambda: "queue 50" in "".join(top.screen), 30, lambda: top.output[-3000:])
        high = top.screen
        top.type("q")
        assert top.ends() == 0

    assert len(wide) == 60
    assert sum("queue " in line for line in wide) < 50
    assert any(re.fullmatch(r"and \d+ more", line) for line in wide)
    assert len(narrow) == 9
    assert max(map(len, narrow)) <= 24
    assert any(line.startswith("queue ") for line in narrow)
    assert not any(line.endswith(" more") for line in high)


def test_nothing_but_ascii_where_that_is_all_there_is(direct: Database, jobs: Jobs) -> None:
    jobs.run("select howdah.enqueue('grüße', queue => 'mäil ✉ ' || repeat('x', 90))")
    jobs.run("select howdah.pause('mäil ✉ ' || repeat('x', 90), 'ödon')")
    plain = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}

    with Terminal("top", "--every", "0.2s", dsn=direct.dsn, size=(100, 30), **plain) as top:
        top.shows("m?il ?")
        top.type("q")
        assert top.ends() == 0
    with Command("top", dsn=direct.dsn, **plain) as once:
        assert once.ends(30) == 0, once.output
        printed = once.output

    assert top.output.isascii()
    assert "m?il ? xxx" in printed
    assert "paused by ?don" in printed


def test_no_colour_when_none_is_wanted(direct: Database, jobs: Jobs) -> None:
    jobs.run("insert into howdah.node (name, beat_at) values ('dead:1', now() - interval '1 hour')")
    colour = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|9\d)[;m]")
    outputs = []
    for more in ({}, {"NO_COLOR": "1"}):
        with Terminal("top", "--every", "0.2s", dsn=direct.dsn, **more) as top:
            top.shows("dead:1")
            top.type("q")
            assert top.ends() == 0
        outputs.append(bool(colour.search(top.output)))

    assert outputs == [True, False]


@pytest.mark.parametrize("words", [("top",), ("top", "--once")], ids=" ".join)
def test_a_terminal_that_can_do_nothing_gets_one_frame(direct: Database, jobs: Jobs, words: tuple[str, ...]) -> None:
    jobs.run("select howdah.enqueue('send')")
    with Terminal(*words, dsn=direct.dsn, TERM="dumb") as top:
        assert top.ends() == 0
        eventually(lambda: "default" in top.output)

    assert "\x1b" not in top.output


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_leaves_the_terminal_as_it_was(direct: Database, name: str) -> None:
    with Terminal("top", "--every", "0.2s", dsn=direct.dsn) as top:
        before = top.modes
        top.shows("0 queued")
        top.process.send_signal(getattr(signal, name))
        assert top.ends() == 0
        after = top.modes
        eventually(lambda: top.output.rstrip().endswith(LEAVE))

    assert after == before


def test_stopped_and_continued_it_goes_on(direct: Database) -> None:
    with Terminal("top", "--every", "0.2s", dsn=direct.dsn) as top:
        top.shows("0 queued")
        top.process.send_signal(signal.SIGSTOP)
        eventually(lambda: state_of(top.process.pid) == "T")
        entered = top.output.count(ENTER)
        top.process.send_signal(signal.SIGCONT)
        eventually(lambda: top.output.count(ENTER) > entered)
        top.type("q")
        assert top.ends() == 0


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_database_that_goes_away_and_comes_back(direct: Database, server: Any) -> None:
    name = direct.dsn.partition("?")[0].rpartition("/")[2]
    with (
        psycopg.connect(server.dsn, autocommit=True) as admin,
        Terminal("top", "--every", "0.2s", dsn=direct.dsn, size=(200, 30)) as top,
    ):
        top.shows("0 queued")
        admin.execute(f'alter database "{name}" with allow_connections false')  # type: ignore[arg-type]
        admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,))
        gone = top.shows("; this was read ")
        admin.execute(f'alter database "{name}" with allow_connections true')  # type: ignore[arg-type]
        eventually(lambda: "; this was read " not in "".join(top.screen), 30, lambda: top.output[-3000:])
        back = top.shows("0 queued")
        top.type("q")
        assert top.ends() == 0

    assert any("0 queued" in line for line in gone)
    assert "accepting connections" in "".join(gone)
    assert back[1].startswith("0 queued")


def test_a_part_that_takes_too_long_is_named(direct: Database, jobs: Jobs) -> None:
    jobs.run("insert into howdah.node (name) values ('alive:1')")
    with Terminal("top", "--every", "0.2s", dsn=direct.dsn) as top, psycopg.connect(direct.dsn) as conn:
        top.shows("alive:1")
        conn.execute("lock table howdah.ready in access exclusive mode")
        top.shows("could not be read, or not in time: queues")
        assert any("alive:1" in line for line in top.screen)
        conn.rollback()
        eventually(lambda: "in time" not in "".join(top.screen), 30)
        top.type("q")
        assert top.ends() == 0


def test_names_cannot_steer_the_terminal(direct: Database, jobs: Jobs) -> None:
    jobs.run("select howdah.enqueue('[bold red]kind[/]', queue => '[red]queue[/]')")
    jobs.run("insert into howdah.node (name) values (E'evil\\x1b[2J\\x07:1')")

    with Terminal("top", "--every", "0.2s", dsn=direct.dsn) as top:
        screen = top.shows("[red]queue[/]")
        top.type("q")
        assert top.ends() == 0

    assert any(r"evil\x1b[2J\x07:1" in line for line in screen)
    assert "\x1b[2J" not in top.output


def test_it_ends_after_so_many_readings(direct: Database) -> None:
    with Terminal("top", "--every", "0.1s", "--count", "3", dsn=direct.dsn) as top:
        assert top.ends() == 0

    assert top.output.startswith(ENTER)


def test_without_a_terminal_it_is_one_frame(howdah: Any) -> None:
    howdah("enqueue", "send", "-q", "mail")

    default, once = howdah("top"), howdah("top", "--once")

    assert default.exit_code == once.exit_code == 0
    assert default.stdout.splitlines()[1].startswith("1 queued  0 scheduled  0 running")
    assert "mail        1          0        0" in default.stdout
    assert "\x1b" not in default.stdout + once.stdout


def test_a_forced_colour_makes_no_terminal(direct: Database) -> None:
    with Command("top", dsn=direct.dsn, FORCE_COLOR="1") as top:
        assert top.ends(30) == 0
        assert "0 queued" in top.output
        assert "\x1b" not in top.output


def test_a_reading_as_json(howdah: Any) -> None:
    howdah("enqueue", "send", "-q", "mail")

    parsed = json.loads(howdah("top", "--json").stdout)

    assert list(parsed) == ["at", "totals", "queues", "nodes", "running", "consumers", "minutes", "late"]
    assert (parsed["totals"]["queued"], parsed["queues"][0]["name"]) == (1, "mail")
    assert parsed["queues"][0]["done"] == {"rate": 0.0, "trend": []}


def test_json_line_by_line(howdah: Any) -> None:
    result = howdah("top", "--json", "--every", "0.1s", "--count", "3")

    readings = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(readings) == 3
    assert readings[0]["at"] < readings[1]["at"] < readings[2]["at"]


def test_tables_are_counted_with_the_app(howdah: Any, shop: Path, jobs: Jobs) -> None:
    jobs.run("insert into uploads default values")

    without, with_app = howdah("top"), howdah("top", "-a", "own")
    jobs.run("drop table uploads")
    gone = howdah("top", "-a", "own")

    assert "uploads" not in without.stdout
    assert re.search(r"uploads table +1 +0 +0 ", with_app.stdout)
    assert gone.exit_code == 0
    assert "table uploads does not exist" in gone.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--every", "0s"), 2, "must be from 0.1 s to 1 h, got 0 s"),
        (("--every", "2h"), 2, "must be from 0.1 s to 1 h, got 7200 s"),
        (("--once", "--count", "2"), 2, "--once and --count 2 contradict each other; say one of them"),
        (("--count", "0"), 2, "0 is not in the range"),
        (("--dsn", "postgresql://me:secret@127.0.0.1:1/x"), 3, "cannot reach postgresql://me:***@127.0.0.1:1/x"),
        (("--schema", "other"), 4, "run `howdah migrate`"),
    ],
    ids=["never", "hardly ever", "contradiction", "none", "unreachable", "no schema"],
)
def test_what_cannot_be(howdah: Any, words: tuple[str, ...], code: int, message: str) -> None:
    found = howdah("top", *words)

    assert found.exit_code == code
    assert message in found.stderr
    assert "secret" not in found.output


def test_examples_in_the_code_are_true() -> None:
    assert doctest.testmod(frame).failed == 0


def test_nothing_is_left_running(direct: Database) -> None:
    with Terminal("top", "--every", "0.2s", dsn=direct.dsn) as top:
        top.shows("0 queued")
        pid = top.process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
