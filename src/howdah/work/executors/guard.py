"""Guard: the parent of a process that runs handlers. When that or the worker dies, it ends all the process started.

The guard is forked off before any user code is imported, shares its memory with the process it guards, and runs no
handler, so nothing a handler does can hold it up.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from typing import NoReturn

from howdah.orphan import signal_at_parents_death
from howdah.program.guard import end_as

LOOK_EVERY = 0.5
"""Seconds between two looks whether the worker lives: a fork of the worker may hold the lifeline open."""


def stand_guard(lifeline: int, worker: int, *others: int) -> None:
    """Fork. Return in the new process, which leads a process group of its own; the old one guards it and never returns.

    ``lifeline``: the socket whose other end the worker holds. ``others``: descriptors that only the new process keeps.
    """
    guard = os.getpid()
    runner = os.fork()
    if runner == 0:
        os.close(lifeline)
        os.setpgid(0, 0)
        signal_at_parents_death(signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)
        return
    for descriptor in others:
        os.close(descriptor)
    with suppress(OSError):
        os.setpgid(runner, runner)  # here too: whichever of the two comes first
    _guard(runner, lifeline, worker)


def _guard(runner: int, lifeline: int, worker: int) -> NoReturn:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    while not _has_ended(runner):
        ready, _, _ = select.select([lifeline, heard], [], [], LOOK_EVERY)
        if heard in ready:
            os.read(heard, 4096)
        if lifeline in ready or os.getppid() != worker:
            break
    # not reaped yet, the runner keeps its number, so the group is surely the one it led
    _kill(runner)
    end_as(os.waitstatus_to_exitcode(os.waitpid(runner, 0)[1]))


def _has_ended(runner: int) -> bool:
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, runner, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    ended, status = os.waitpid(runner, os.WNOHANG)  # macOS before Python 3.13 can only reap it
    if ended:
        _kill(runner)
        end_as(os.waitstatus_to_exitcode(status))
    return False


def _kill(runner: int) -> None:
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(runner, signal.SIGKILL)
