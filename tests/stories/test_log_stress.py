"""Sixteen who append and five who read flat out: the frontier loses nothing, the obvious ways to read do.

HOWDAH_STRESS_SECONDS says for how long.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kit.readers import READERS

pytestmark = pytest.mark.stories

SECONDS = float(os.environ.get("HOWDAH_STRESS_SECONDS", "8"))
RIGHT = ("frontier", "log")
Row = tuple[int, str, int]


class Program:
    """One of the kit's programs, with its output in a file; when the block ends nothing of it is left."""

    def __init__(self, module: str, *words: str) -> None:
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            stdin=subprocess.PIPE,
            stdout=self._output,
        )

    def output(self, seconds: float) -> list[str]:
        """Tell it that nothing more will come, and wait for what it says."""
        assert self._process.stdin
        self._process.stdin.close()
        assert self._process.wait(seconds) == 0
        self._output.seek(0)
        return self._output.read().splitlines()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._output.close()


@contextmanager
def bystanders(dsn: str) -> Iterator[None]:
    """What stalls readers who wait for the oldest transaction: all of it open the whole time."""
    with ExitStack() as stack:
        snapshot, writer, locks = (stack.enter_context(psycopg.connect(dsn)) for _ in range(3))
        snapshot.execute("set transaction isolation level repeatable read")
        snapshot.execute("select count(*) from howdah.event")
        writer.execute("create table bystander (n int)")
        writer.execute("insert into bystander values (1)")
        locks.execute("select pg_advisory_lock(g) from generate_series(1, 500) g")
        locks.execute("select pg_advisory_lock_shared(7, g) from generate_series(1, 500) g")
        locks.execute("select pg_advisory_xact_lock_shared('howdah.job'::regclass::oid::int, 1)")
        yield
        for conn in (snapshot, writer, locks):
            conn.rollback()


def committed(dsn: str) -> list[Row]:
    with psycopg.connect(dsn) as conn:
        return conn.execute(
            "select position, stream_type || '-' || stream_id, version from howdah.event order by position"
        ).fetchall()


def rows_of(lines: list[str]) -> list[Row]:
    split = (line.split() for line in lines)
    return [(int(position), stream, int(version)) for position, stream, version in split]


@pytest.mark.timeout(SECONDS * 4 + 120)
def test_every_committed_event_is_seen_once_and_in_order(direct: Any) -> None:
    with ExitStack() as stack:
        stack.enter_context(bystanders(direct.dsn))
        names = ["log", *READERS]
        readers = {name: stack.enter_context(Program("kit.readers", direct.dsn, name)) for name in names}
        appenders = stack.enter_context(Program("kit.appenders", direct.dsn, str(SECONDS)))
        did = json.loads(appenders.output(SECONDS + 60)[0])
        # the bystanders are still there: whoever waited for them would never end
        output = {name: reader.output(60) for name, reader in readers.items()}
    truth = committed(direct.dsn)
    seen = {name: rows_of(lines[1:]) for name, lines in output.items()}
    figures = {name: json.loads(lines[0]) for name, lines in output.items()}
    lost = {name: len(truth) - len(set(rows)) for name, rows in seen.items()}
    print(f"\n{len(truth)} committed in {SECONDS:g} s, {len(truth) / SECONDS:.0f} a second: {did}")
    for name in names:
        print(f"  {name:14} lost {lost[name]:6}  longest stall {figures[name]['stall']:.3f} s  {figures[name]}")

    assert len(truth) == did["events"]
    assert min(did[kind] for kind in ("rollbacks", "savepoints", "old snapshots", "copies")) > 10
    for name in RIGHT:
        same = seen[name] == truth  # apart, for nobody wants to read the difference
        assert same, f"{name} saw {len(seen[name])} and lost {lost[name]}"
        assert figures[name]["stall"] < max(3.0, SECONDS / 2)
    assert lost["naive"] > 0, "the appenders are too tame to prove anything"
    per_stream: dict[str, int] = {}
    for _, stream, version in truth:
        assert version == per_stream.get(stream, 0) + 1
        per_stream[stream] = version
