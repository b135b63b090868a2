"""Howdah under torture: every front, real processes, several faults; and the same checker when a guard is off."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from howdah_lab.torture.all import torture
from howdah_lab.torture.faults import faults
from howdah_lab.torture.guards import GUARDS, OF_PROGRESS
from howdah_lab.torture.report import lines
from howdah_lab.torture.servers.child_reaper import below
from kit.command import Command, alive, eventually

pytestmark = pytest.mark.stories
run = asyncio.run
"""As the command runs it: an error that the client of a killed server leaves in a future is only logged."""

SEED = int(os.environ.get("HOWDAH_TORTURE_SEED", "1"))
SECONDS = float(os.environ.get("HOWDAH_TORTURE_SECONDS", "20"))


def chosen(*names):
    return [faults()[name] for name in names]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "names",
    [
        ("kill", "freeze", "stop"),
        ("cut", "terminate", "dark", "restart"),
        (
            *("crash-claim", "crash-append", "crash-checkpoint", "crash-rows", "crash-rows-ack"),
            *("crash-fleet-claim", "crash-fleet-ack"),
        ),
        ("outage",),
        ("promote-sync",),
        ("promote-async",),
        ("releases",),
        ("poison", "refused"),
    ],
    ids=["processes", "connections", "crashes", "outage", "promote-sync", "promote-async", "releases", "hostile"],
)
def test_nothing_is_lost_nothing_doubled_and_everything_goes_on(tmp_path, names):
    report = run(torture(chosen(*names), seconds=SECONDS, seed=SEED, folder=tmp_path))
    text = "\n".join(lines(report))
    assert not report.broken, text
    assert report.injections, text
    assert report.effects > 100, text


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("fault", "guard"),
    [
        *(("kill", "reset"), ("freeze", "fence"), ("cut", "transaction"), ("slow", "frontier")),
        *(
            ("crash-append", "flush"),
            ("crash-rows-ack", "flush"),
            ("outage", "contact"),
            ("promote-sync", "flush"),
            ("promote-async", "sequence"),
            ("promote-async", "run"),
        ),
        *(("releases", "declaration"), ("poison", "cleaning"), ("refused", "cleaning")),
    ],
)
def test_without_a_guard_the_checker_notices(tmp_path, fault, guard):
    """A fault has to meet something at the wrong moment, so it may take more than one run."""
    printed = []
    for seed in range(SEED, SEED + 3):
        report = run(torture(chosen(fault), seconds=15, seed=seed, folder=tmp_path / str(seed), without=guard))
        printed += lines(report)
        if report.noticed:
            return
    raise AssertionError("\n".join(printed))


def test_the_faults_are_listed_with_their_controls():
    with Command("torture", "--list") as command:
        assert command.ends() == 0
        assert "kill" in command.output
        assert "without fence" in command.output


def test_every_fault_has_a_control():
    assert all(fault.controls for fault in faults().values())
    assert {guard for fault in faults().values() for guard in fault.controls} == GUARDS.keys()
    assert GUARDS.keys() > OF_PROGRESS


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=["TERM", "INT", "KILL"])
def test_a_run_that_is_ended_by_a_signal_leaves_no_process_and_no_server_behind(tmp_path, number):
    """Also not one that has just been started and cannot know yet with whom it ends."""
    found: dict[int, str] = {}

    def started() -> dict[int, str]:
        for pid in {*below(run.process.pid), *marked(str(tmp_path))}:
            found[pid] = command_line(pid) or found.get(pid, "")
        return found

    with Command("torture", "--fault", "kill", "--seconds", "60", "--folder", str(tmp_path)) as run:
        eventually(lambda: any("--server" in line for line in started().values()), why=lambda: run.output)
        run.send(number)
        code = run.ends()
        left = [f"{pid}: {found[pid]}" for pid in started() if alive(pid)]
    folders = [folder for line in found.values() for folder in re.findall(r'"folder": "([^"]+)"', line)]
    assert folders
    if number == signal.SIGKILL:
        eventually(lambda: not any(map(alive, started())), 15, lambda: str(found))
        eventually(lambda: not any(map(os.path.exists, folders)), 15)
    else:
        assert code == 1
        assert not left, left
        assert not any(map(os.path.exists, folders))


def marked(word: str) -> list[int]:
    """The processes with this word in their environment."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in (folder / "environ").read_bytes():
                pids.append(int(folder.name))
    return pids


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--fault", "rain"), "there is no fault 'rain'; known are kill"),
        (("--fault", "restart", "--dsn", "postgresql://h:1/x"), "restart would harm a server that is not ours"),
        (("--fault", "kill", "--dsn", "postgresql:///x"), "the DSN has to name a host"),
    ],
)
def test_what_cannot_be_is_said(words, message):
    with Command("torture", *words) as command:
        assert command.ends() == 2, command.output
        assert message in command.output
