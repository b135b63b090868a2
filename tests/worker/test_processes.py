"""Handlers in processes: none is forgotten when it dies, none leaves anything behind, none runs twice by accident."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from subprocess import Popen

import pytest

from howdah.handler import Handler
from howdah.job import Job, current
from howdah.outcome import Outcome
from howdah.retry import LONGEST_DELAY
from howdah.store import JobLogEntry
from howdah.worker.job_log import sink
from howdah.worker.processes.process import ProcessDied
from kit import leaking_handlers
from kit.command import TESTS, alive
from kit.command import eventually as waited
from kit.node import eventually
from kit.process_executor import LARGEST_RESULT, acks, job_of, processes, run_in

pytestmark = pytest.mark.anyio


def pids(file: Path) -> list[int]:
    return [int(word) for word in file.read_text().split()] if file.exists() else []


async def gone(*numbers: int) -> None:
    async def none() -> bool:
        return not any(map(alive, numbers))

    await eventually(none)


# ---------------------------------------------------------------- what dies


@pytest.mark.parametrize("leaves_group", [False, True], ids=["in the group", "in a session of its own"])
async def test_a_killed_handler_is_noticed_although_a_fork_of_it_lives(tmp_path, leaves_group):
    file = tmp_path / "pids"
    async with processes() as made:
        with pytest.raises(ProcessDied, match="killed by SIGKILL"):
            async with asyncio.timeout(30):
                await run_in(made, leaking_handlers.forks_and_is_killed, file=str(file), leaves_group=leaves_group)
    [fork] = pids(file)
    if leaves_group:
        assert alive(fork), "the check was blind: nothing held the socket"
        os.kill(fork, signal.SIGKILL)
    else:
        await gone(fork)


@pytest.mark.parametrize(
    ("then", "words"),
    [
        ("exits", "exited with code 9"),
        ("is killed", "killed by SIGKILL"),
        ("dies of a realtime signal", "killed by signal 37|killed by SIGRTMIN"),
    ],
)
async def test_what_a_dead_process_started_ends_with_it(tmp_path, then, words):
    async with processes() as made:
        with pytest.raises(ProcessDied, match=words):
            await run_in(made, leaking_handlers.starts_programs_and, file=str(tmp_path / "pids"), then=then)
        family = pids(tmp_path / "pids")
        assert len(family) == 4
        await gone(*family)


async def test_what_a_cancelled_handler_started_ends_before_its_outcome(tmp_path):
    file = tmp_path / "pids"
    async with processes() as made:
        running = asyncio.create_task(run_in(made, leaking_handlers.starts_programs_and, file=str(file), then="waits"))

        async def started() -> bool:
            return len(pids(file)) == 4

        await eventually(started)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await gone(*pids(file))


@pytest.mark.parametrize("then", ["waits", "holds the interpreter lock"])
def test_everything_ends_with_a_worker_that_is_killed(tmp_path, then):
    file = tmp_path / "pids"
    with Popen(
        [sys.executable, "-m", "kit.leaking_handlers", str(file), then], env={**os.environ, "PYTHONPATH": str(TESTS)}
    ) as worker:
        waited(lambda: len(pids(file)) == 4)
        family = pids(file)
        assert all(map(alive, family))
        worker.kill()
    waited(lambda: not any(map(alive, family)), 30)


async def test_warm_processes_end_when_the_worker_is_done():
    async with processes() as made:
        number = await run_in(made, leaking_handlers.where)
        assert alive(number)
    assert not alive(number)


# ---------------------------------------------------------------- what is handed to whom


async def test_a_process_is_kept_for_the_next_job():
    async with processes() as made:
        assert await run_in(made, leaking_handlers.where) == await run_in(made, leaking_handlers.where)


@pytest.mark.parametrize("noticed", [False, True], ids=["at once", "when it is noticed"])
async def test_a_job_is_not_lost_to_a_process_that_died_idle(noticed):
    async with processes() as made:
        first = await run_in(made, leaking_handlers.where)
        os.kill(first, signal.SIGKILL)
        if noticed:
            await gone(first)
            await asyncio.sleep(0.2)
        second = await run_in(made, leaking_handlers.where)

        assert second != first
        assert await run_in(made, leaking_handlers.where) == second


async def test_a_handler_that_began_does_not_begin_again_when_its_process_dies(tmp_path):
    async with processes() as made:
        with pytest.raises(ProcessDied, match="exited with code 9"):
            await run_in(made, leaking_handlers.counts_and_dies, file=str(tmp_path / "pids"))
    assert len(pids(tmp_path / "pids")) == 1


async def test_where_no_process_can_start_a_job_waits_and_is_not_charged(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (ack,) = await acks("process", leaking_handlers.where)
    assert (ack.outcome, ack.error) == (Outcome.SNOOZED, None)


# ---------------------------------------------------------------- what is said


OUTCOMES = [
    "something plain",
    "a number of 71 bits",
    "a number of 71 bits inside",
    "no JSON",
    "a lone surrogate",
    "too large",
    "a result whose own code fails",
    "a long snooze",
    "an endless snooze",
    "a cancel that names a secret",
    "a long cancel",
    "a cancel without a word",
    "a cancel that is a number",
    "a snooze into the past",
    "a snooze that is no number",
    "an odd error",
]
SNOOZES, CANCELS, FAILURES = OUTCOMES[7:9], OUTCOMES[9:13], OUTCOMES[13:]


async def test_an_outcome_of_a_process_is_that_of_a_thread():
    jobs = [{"what": what} for what in OUTCOMES]
    here = await acks("thread", leaking_handlers.ends_with, *jobs)
    there = await acks("process", leaking_handlers.ends_with, *jobs)

    for what, one, other in zip(OUTCOMES, here, there, strict=True):
        for aspect in ("outcome", "error", "message", "result"):
            assert getattr(one, aspect) == getattr(other, aspect), (what, aspect)
        if what in SNOOZES:
            assert other.outcome is Outcome.SNOOZED, what
            assert one.delay == other.delay == LONGEST_DELAY, what
        elif what in CANCELS:
            assert other.outcome is Outcome.CANCELLED, what
        elif what in FAILURES:
            assert other.outcome is Outcome.FAILED, what
            assert other.message, what
            assert "exited" not in other.message, what
        else:
            assert other.outcome is Outcome.OK, what
    assert there[1].result == b"1180591620717411303424"
    assert {ack.error for ack in there[3:7]} == {"ResultNotStored"}


@pytest.mark.parametrize(
    ("what", "outcome", "words"),
    [
        ("a cancel that is no text", Outcome.CANCELLED, "no ?"),
        ("an error that is no text", Outcome.FAILED, "wrong ?"),
    ],
)
async def test_words_that_are_no_text_are_made_text(what, outcome, words):
    (ack,) = await acks("process", leaking_handlers.ends_with, what=what)
    assert (ack.outcome, ack.message) == (outcome, words)


class Ear:
    """Collects what jobs say."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []

    def write(self, job: Job, entry: JobLogEntry) -> None:
        self.lines += [(job.id, line.split(" ")[2]) for line in entry.lines]


async def run_job(made, function):
    handler = Handler(function.__name__, function, executor="process")
    job = job_of(handler)
    current.set(job)
    return job.id, await made.run(handler, job, LARGEST_RESULT)


async def test_threads_that_log_tear_no_answer_and_speak_for_no_other_job():
    ear = Ear()
    sink.set(ear)
    async with processes(1) as made:
        for _ in range(4):
            talker, value = await run_job(made, leaking_handlers.logs_from_threads_while_it_returns)
            assert len(bytes(value)) == leaking_handlers.BIG + 2
            other, _ = await run_job(made, leaking_handlers.logs_a_little)
            assert {talker, other} <= {job for job, _ in ear.lines}, "the check was blind: nobody spoke"
    assert {(job, int(by)) for job, by in ear.lines} == {(job, job) for job, _ in ear.lines}


async def test_forks_speak_for_their_job():
    ear = Ear()
    sink.set(ear)
    async with processes(1) as made:
        job, _ = await run_job(made, leaking_handlers.logs_from_forks)
    assert ear.lines == [(job, str(job))] * 2500
