"""Handlers in processes of their own that leave something behind: forks, programs, threads, strange results."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextvars import copy_context
from pathlib import Path

from howdah import Cancel, Snooze, current_job
from howdah.worker.job_log import job_log

BIG = 900_000


def where() -> int:
    """The process it runs in."""
    return os.getpid()


def forks_and_is_killed(file: str, leaves_group: bool) -> None:
    """A fork, without exec, holds all that this process had open."""
    fork = os.fork()
    if fork == 0:
        if leaves_group:
            os.setsid()
        _note(file, os.getpid())
        time.sleep(300)
        os._exit(0)
    while not Path(file).exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)


def starts_programs_and(file: str, then: str) -> None:
    """Children of two kinds, and then an end of some kind."""
    fork = os.fork()
    if fork == 0:
        time.sleep(300)
        os._exit(0)
    _note(file, os.getpid(), fork, *(subprocess.Popen(["sleep", "300"]).pid for _ in range(2)))
    match then:
        case "exits":
            os._exit(9)
        case "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "dies of a realtime signal":
            os.kill(os.getpid(), signal.SIGRTMIN + 3)
        case "holds the interpreter lock":
            ctypes.PyDLL(None).sleep(300)
        case "waits":
            time.sleep(300)


def counts_and_dies(file: str) -> None:
    """It began, so it must not begin again by itself."""
    _note(file, os.getpid())
    os._exit(9)


def ends_with(what: str) -> object:
    """Every outcome a message between processes might not be able to carry."""
    match what:
        case "a number of 71 bits":
            return 2**70
        case "a number of 71 bits inside":
            return {"n": [2**70]}
        case "no JSON":
            return object()
        case "a lone surrogate":
            return "\ud800"
        case "too large":
            return "x" * 2_000_000
        case "a result whose own code fails":
            return _Unwilling()
        case "a long snooze":
            return Snooze(10**30)
        case "an endless snooze":
            return Snooze(10**400)
        case "a snooze into the past":
            return Snooze(-1)
        case "a snooze that is no number":
            return Snooze("soon")  # type: ignore[arg-type]
        case "a cancel that names a secret":
            return Cancel("token=hunter2\0")
        case "a long cancel":
            return Cancel("x" * 100_000)
        case "a cancel without a word":
            return Cancel(None)  # type: ignore[arg-type]
        case "a cancel that is a number":
            return Cancel(17)  # type: ignore[arg-type]
        case "a cancel that is no text":
            return Cancel("no \ud800")
        case "an error that is no text":
            raise ValueError("wrong \ud800")
        case "an odd error":
            raise _Odd
        case _:
            return {"fine": what}


class _Unwilling:
    def model_dump(self, mode: str) -> object:
        raise LookupError(f"there is no {mode} of it")


class _Odd(Exception):
    retry_after = 10**30

    def __str__(self) -> str:
        raise RuntimeError("not even this")


def logs_from_threads_while_it_returns() -> str:
    """Threads that know the job go on when it has ended."""
    for _ in range(4):
        threading.Thread(target=copy_context().run, args=(_chatter, current_job().id), daemon=True).start()
    time.sleep(0.05)
    return "x" * BIG


def logs_a_little() -> str:
    """Says something of its own, long enough for others to join in."""
    until = time.monotonic() + 0.3
    while time.monotonic() < until:
        job_log(f"said by {current_job().id}")
        time.sleep(0.01)
    return "fine"


def logs_from_forks() -> str:
    """Forks speak for the job as long as it runs, however many there are."""
    forks = []
    for _ in range(4):
        fork = os.fork()
        if fork == 0:
            for _ in range(10):
                job_log(*_much(current_job().id))
            os._exit(0)
        forks.append(fork)
    for _ in range(10):
        job_log(*_much(current_job().id))
    for fork in forks:
        os.waitpid(fork, 0)
    return "fine"


def _chatter(job: int) -> None:
    until = time.monotonic() + 3
    while time.monotonic() < until:
        job_log(*_much(job))


def _much(job: int) -> list[str]:
    """Lines of one message that is too large to be written at once."""
    return [f"said by {job} " + "x" * 9000] * 50


def _note(file: str, *numbers: int) -> None:
    part = Path(f"{file}.{os.getpid()}")
    before = Path(file).read_text() if Path(file).exists() else ""
    part.write_text(before + " ".join(map(str, numbers)) + "\n")
    part.rename(file)


if __name__ == "__main__":  # a worker of one job, to be killed: python -m kit.leaking_handlers FILE THEN
    import asyncio

    from kit.process_executor import run_one

    asyncio.run(run_one(starts_programs_and, file=sys.argv[1], then=sys.argv[2]))
