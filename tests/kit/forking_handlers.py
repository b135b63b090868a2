"""Handlers that fork and let the fork come back, close what is not theirs, or kill their guard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from howdah import Transaction


def forks(file: str, then: str) -> list[int]:
    """Leave the handler twice, once in a fork; returns the fork and how it ended."""
    pid = os.fork()
    if pid == 0:
        match then:
            case "exits":
                sys.exit(0)
            case "exits with a code":
                sys.exit(7)
            case "raises":
                raise ValueError("in the fork")
        return [os.getpid()]
    end = time.monotonic() + 60
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return [0, -1]
        time.sleep(0.01)
    return [os.getpid(), os.waitstatus_to_exitcode(ended[1])]


async def forks_later(file: str, then: str) -> list[int]:
    """The same as a coroutine."""
    return forks(file, then)


async def forks_in_transaction(tx: Transaction, file: str, then: str) -> list[int]:
    """The same with a connection that the fork must leave alone."""
    await tx.execute("select 1")
    return forks(file, then)


def closes(file: str, then: str) -> int:
    """Close every descriptor, also that of the socket to the worker."""
    Path(file).write_text(str(os.getpid()))
    if then == "a thread goes on":
        threading.Thread(target=time.sleep, args=(600,)).start()
    os.closerange(3, 1000)
    if then == "waits":
        time.sleep(600)
    return 1


def kills_guard(file: str, then: str) -> None:
    """Kill the process between this one and the worker, with a program of one's own still running."""
    program = subprocess.Popen(["sleep", "600"])
    Path(file).write_text(f"{os.getpid()} {program.pid}")
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def counts(n: int) -> int:
    """Say which job this is."""
    return n


def sleeps(n: int) -> int:
    """Take longer than any timeout of a test."""
    time.sleep(600)
    return n
