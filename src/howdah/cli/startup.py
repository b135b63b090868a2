"""Start-up before slow imports: process 1 becomes an init process, and a worker handles signals."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from howdah.child_process import LISTENS, report_to_parent

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
DUMP_SIGNALS = (signal.SIGUSR1, signal.SIGTTIN)
"""Signals at which a process writes its stacks to stderr."""
NOT_FORWARDED = (
    signal.SIGCHLD,
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGTTOU,
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGABRT,
    signal.SIGTRAP,
    signal.SIGSYS,
)
"""Signals for process 1 itself."""
stopped = False
"""True if a signal to stop came while the application was imported."""


def prepare(arguments: Sequence[str]) -> None:
    """Prepare the process for a command line."""
    become_init()
    if arguments[:1] == ["worker"]:
        handle_signals()


def become_init() -> None:
    """As process 1, of a container: fork, and return in the new process only.

    Process 1 is the parent of every orphan in its container. It reaps them, passes signals on, and ends as the new
    process ends. It could not reap in the process that works: that would take the exit codes of its own children.
    """
    if os.getpid() != 1:
        return
    forwarded = set(signal.valid_signals()) - set(NOT_FORWARDED)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, forwarded | {signal.SIGCHLD})
    child = os.fork()
    with suppress(OSError):
        os.setpgid(child, child or os.getpid())  # in both processes: either may run first
    if child == 0:
        _take_terminal()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    _serve_as_init(child, forwarded)


def handle_signals() -> None:
    """Handle signals while the application is imported: no job is held yet, so a stop exits at once."""
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    for number in DUMP_SIGNALS:
        signal.signal(number, _dump)
    report_to_parent(LISTENS)


def _take_terminal() -> None:
    """Become the foreground process group, so that Ctrl-C reaches only this process."""
    with suppress(OSError):
        if os.isatty(0):
            before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            os.tcsetpgrp(0, os.getpgrp())
            signal.signal(signal.SIGTTOU, before)


def _serve_as_init(child: int, forwarded: set[signal.Signals]) -> NoReturn:
    while True:
        number = signal.sigwait(forwarded | {signal.SIGCHLD})
        if number != signal.SIGCHLD:
            with suppress(ProcessLookupError):
                os.kill(child, number)
        for pid, status in iter(_reap, None):
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                os._exit(code if code >= 0 else 128 - code)


def _reap() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _stop(_number: int, _frame: FrameType | None) -> None:
    global stopped
    stopped = True  # in case an import swallows the exception
    print("howdah: stopped before it started", file=sys.stderr, flush=True)
    raise SystemExit(0)


def _dump(_number: int, frame: FrameType | None) -> None:
    sys.stderr.write("".join(["still importing, most recent call last:\n", *traceback.format_stack(frame)]))
    sys.stderr.flush()
