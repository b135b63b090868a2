"""A handler that forks, closes its sockets or kills its guard: its job has one outcome, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from howdah.outcome import Outcome
from howdah.worker.processes import process
from howdah.worker.processes.process import ProcessDied
from kit import forking_handlers
from kit.command import alive
from kit.node import drain, eventually
from kit.process_executor import acks, processes, run_in

pytestmark = pytest.mark.anyio
ENDS = [("returns", 0), ("exits", 0), ("exits with a code", 7), ("raises", 1)]


@pytest.mark.parametrize(("then", "code"), ENDS)
@pytest.mark.parametrize(
    ("executor", "function"),
    [("async", forking_handlers.forks_later), ("thread", forking_handlers.forks), ("process", forking_handlers.forks)],
    ids=["async", "thread", "process"],
)
async def test_a_fork_that_comes_back_from_its_handler_ends_there(executor, function, then, code):
    (ack,) = await acks(executor, function, file="", then=then)

    assert (ack.outcome, ack.error) == (Outcome.OK, None)
    pid, ended = msgspec.json.decode(ack.result)
    assert (pid == os.getpid()) is (executor != "process")
    assert ended == code


async def test_a_fork_that_comes_back_reads_none_of_the_next_jobs():
    async with processes(1) as made:
        first, _ = await run_in(made, forking_handlers.forks, file="", then="returns")
        assert [await run_in(made, forking_handlers.counts, n=n) for n in range(10)] == list(range(10))
        assert (await run_in(made, forking_handlers.forks, file="", then="returns"))[0] == first


async def test_a_fork_leaves_the_transaction_of_its_job_alone(app, conn):
    task = app.task(transactional=True, max_attempts=1)(forking_handlers.forks_in_transaction)
    for then, _ in ENDS:
        await task.enqueue(file="", then=then)
    await drain(app)

    rows = await conn.fetch("select state, attempt, result from howdah.jobs order by id")
    assert [(row["state"], row["attempt"], msgspec.json.decode(row["result"])[1]) for row in rows] == [
        ("done", 1, code) for _, code in ENDS
    ]


@pytest.mark.parametrize("then", ["waits", "a thread goes on"])
async def test_a_process_that_closed_its_socket_does_not_keep_its_slot(tmp_path, monkeypatch, then):
    monkeypatch.setattr(process, "CLOSE_WITHIN", 0.2)
    async with processes(1) as made:
        with pytest.raises(ProcessDied, match="closed its socket"):
            await run_in(made, forking_handlers.closes, file=str(tmp_path / "pid"), then=then)
        assert not alive(int((tmp_path / "pid").read_text()))


async def test_a_process_that_closed_its_socket_and_ended_is_said_to_have_ended(tmp_path):
    async with processes(1) as made:
        with pytest.raises(ProcessDied, match="exited with code 1"):
            await run_in(made, forking_handlers.closes, file=str(tmp_path / "pid"), then="returns")


async def test_what_a_process_started_ends_although_its_guard_was_killed(tmp_path):
    async with processes(1) as made:
        with pytest.raises(ProcessDied, match="killed by SIGKILL"):
            await run_in(made, forking_handlers.kills_guard, file=str(tmp_path / "pids"), then="")
        family = [int(each) for each in Path(tmp_path / "pids").read_text().split()]

        async def gone() -> bool:
            return not any(map(alive, family))

        await eventually(gone)


async def test_control_without_a_kill_of_the_group_a_program_outlives_its_killed_guard(tmp_path, monkeypatch):
    monkeypatch.setattr(process.os, "killpg", lambda *_: None)
    async with processes(1) as made:
        with pytest.raises(ProcessDied, match="killed by SIGKILL"):
            await run_in(made, forking_handlers.kills_guard, file=str(tmp_path / "pids"), then="")
    program = int(Path(tmp_path / "pids").read_text().split()[1])
    assert alive(program)
    os.kill(program, signal.SIGKILL)


async def test_a_process_that_does_not_begin_is_given_up(monkeypatch, tmp_path):
    """Without a bound a job without a timeout would wait for it for ever."""
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setattr(process, "START_WITHIN", 0.2)
    monkeypatch.setattr("sys.executable", str(slow))
    (ack,) = await acks("process", forking_handlers.counts, n=1)
    assert (ack.outcome, ack.error) == (Outcome.SNOOZED, None)

    monkeypatch.setattr(process, "START_WITHIN", 600.0)  # control: it is the bound that gives it up
    async with processes(1) as made:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await run_in(made, forking_handlers.counts, n=1)


async def test_to_start_a_process_is_not_handler_time(monkeypatch, tmp_path):
    """The process takes longer to start than the timeout allows, and its handler does not."""
    slow = tmp_path / "python"
    slow.write_text(f'#!/bin/sh\nsleep 6\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(slow))
    (ack,) = await acks("process", forking_handlers.counts, timeout=5.0, n=1)
    assert (ack.outcome, ack.error, ack.result) == (Outcome.OK, None, b"1")
    assert ack.took < 6_000_000


async def test_control_the_time_of_a_handler_in_a_process_is_bounded():
    (ack,) = await acks("process", forking_handlers.sleeps, timeout=1.0, n=1)
    assert (ack.outcome, ack.error) == (Outcome.FAILED, "TimeoutError")
