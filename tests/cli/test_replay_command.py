"""`howdah consumers replay` and `wait`."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

from kit.command import Command
from kit.shop import Shop


def test_replay_waits_and_says_how_far_it_is(howdah, shop):
    shop.append_many(1000)
    shop.catch_up()
    shop.conn.execute("delete from seen")

    with shop.worker() as worker:
        result = howdah("consumers", "replay", "totals", "--yes")
        assert worker.process.poll() is None

    assert (result.exit_code, result.stdout) == (0, "consumer 'totals' has seen everything from position 0 to 1000\n")
    percents = [int(line.split()[0]) for line in result.stderr.splitlines() if " %, " in line]
    assert percents == sorted(set(percents))
    assert percents[-1] == 100
    assert shop.seen("totals") == list(range(1, 1001))


def test_replay_from_a_place_without_waiting(howdah, shop):
    shop.append("{}", "{}", "{}")
    shop.catch_up()

    result = howdah("consumers", "replay", "totals", "--from", "2", "--no-wait", "--yes")
    shop.catch_up()

    assert result.stdout == "consumer 'totals' continues after position 2, 1 behind the frontier\n"
    assert shop.seen("totals") == [1, 2, 3, 3]


def test_a_replay_nobody_works_on_says_so_and_goes_on_when_somebody_comes(shop):
    shop.append("{}", "{}")
    shop.catch_up()

    with Command("consumers", "replay", "totals", "--yes", dsn=shop.dsn) as replay:
        replay.says("no live node has consumer 'totals'; start a worker with its code")
        with shop.worker() as worker:
            assert replay.ends(20) == 0, worker.output

    assert replay.process.returncode == 0
    assert shop.seen("totals") == [1, 1, 2, 2]


def test_a_replay_that_halts_ends_with_the_error(howdah, shop):
    shop.append("{}", '{"bad": 1}')
    shop.conn.execute("insert into mended default values")
    shop.catch_up()
    shop.conn.execute("delete from mended")

    with shop.worker():
        result = howdah("consumers", "replay", "totals", "--yes")

    assert result.exit_code == 1
    assert "howdah: consumer 'totals' is halted at event 2: ValueError: cannot" in result.stderr
    assert "hunter2" not in result.stderr


def test_a_replay_on_a_terminal_asks_and_draws_a_bar(shop):
    shop.append_many(300)
    shop.catch_up()

    refused, _ = on_a_terminal(shop, b"n\n", "consumers", "replay", "totals")
    with shop.worker():
        accepted, drawn = on_a_terminal(shop, b"y\n", "consumers", "replay", "totals")

    assert refused == 1
    assert accepted == 0
    assert "replay consumer 'totals' from the beginning [y/N]" in drawn
    assert "300/300" in drawn
    assert "events/s" in drawn
    assert len(shop.seen("totals")) == 600


def on_a_terminal(shop: Shop, answer: bytes, *words: str) -> tuple[int, str]:
    """Run a command on a terminal of its own, and type an answer; returns its exit code and what it drew."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "howdah", *words],
            env={**os.environ, "HOWDAH_DSN": shop.dsn, "TERM": "xterm", "COLUMNS": "120"},
            cwd=shop.folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        os.write(ours, answer)
        drawn = b""
        try:
            while more := os.read(ours, 65536):
                drawn += more
        except OSError:  # the other end is closed
            pass
        return process.wait(20), drawn.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_wait_for_a_node_that_is_not_there(howdah, shop):
    shop.catch_up()
    shop.append()

    result = howdah("consumers", "wait", "totals", "--timeout", "0.1")

    assert result.exit_code == 1
    assert "consumer 'totals' is at 0, not at 1, after 0.1 s; no live node has consumer 'totals'" in result.stderr
