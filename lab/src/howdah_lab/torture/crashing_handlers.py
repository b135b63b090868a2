"""Handlers that kill their own process in different ways; their jobs must end as failed."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import stat
import sys
import time
from contextlib import suppress
from typing import Any

from howdah_lab.torture import guards
from howdah_lab.torture.app import AGAIN, app

ATTEMPTS = 2
APART: Any = "thread" if guards.off("process") else "process"
"""Where handlers run that take their process with them."""
LIVES = 300.0
"""Lifetime in seconds of a fork that is not killed."""
ESCAPES = "5"
"""Seconds a program lives that left the session of its job, and so is not ended with it."""


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor=APART)
def vanishes(mark: int) -> None:
    """Ends its process without a word."""
    os._exit(7)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor=APART)
def vanishes_well(mark: int) -> None:
    """Ends its process as if all were well."""
    os._exit(0)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor=APART)
def segfaults(mark: int) -> None:
    """Reads where nothing is."""
    ctypes.string_at(0)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor=APART)
def is_killed(mark: int) -> None:
    """Is killed as by the system when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor=APART)
def is_told(mark: int) -> None:
    """Is killed by a signal without a handler."""
    os.kill(os.getpid(), signal.SIGUSR2)
    time.sleep(LIVES)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor=APART)
def forks_and_vanishes(mark: int) -> None:
    """Leaves a fork behind, which has everything open that its parent had."""
    if os.fork() == 0:
        time.sleep(LIVES)
        os._exit(0)
    os._exit(9)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor=APART)
def forks_and_is_killed(mark: int) -> None:
    """The same, and is killed."""
    if os.fork() == 0:
        time.sleep(LIVES)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor=APART)
def escapes(mark: int) -> None:
    """Leaves a grandchild in a session of its own behind: nothing ends it, and it may not keep the job's slot."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", ["sleep", ESCAPES], {})  # noqa: S606 - a program that ends by itself
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor=APART)
def closes(mark: int) -> None:
    """Closes every file and socket of its process, and returns."""
    os.closerange(3, 4096)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor=APART)
def hangs_up(mark: int) -> None:
    """Shuts the sockets of its process down, and runs for longer than any timeout."""
    for number in range(3, 1024):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as connection:
                    connection.shutdown(socket.SHUT_RDWR)
    time.sleep(LIVES)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor=APART, timeout=3.0)
def babbles(mark: int) -> None:
    """Writes what is no answer into the sockets of its process."""
    for number in range(3, 1024):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                os.write(number, b"\0\0\0\x04what")


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor="process", timeout=1.0)
def loops(mark: int) -> None:
    """Never ends."""
    while True:
        pass


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor="process", timeout=1.0)
def stops(mark: int) -> None:
    """Freezes its own process."""
    os.kill(os.getpid(), signal.SIGSTOP)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor="process")
def exits_apart(mark: int) -> None:
    """Wants its process to end."""
    sys.exit(3)


CRASHING = (
    *(vanishes, vanishes_well, segfaults, is_killed, is_told, forks_and_vanishes, forks_and_is_killed),
    *(escapes, closes, hangs_up, babbles, loops, stops, exits_apart),
)
