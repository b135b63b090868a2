"""Child processes: a child reports to its parent and ends when the parent has died; how a process ended."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from howdah.errors import ConfigError

PARENT = "HOWDAH_SUPERVISOR"
"""Environment variable of a child with the process id of its supervisor."""
REPORT_PIPE = "HOWDAH_TELL_SUPERVISOR"
"""Environment variable of a child with the file descriptor of the pipe to its supervisor."""
LISTENS, READY = b"l", b"r"
"""Bytes a child writes to the pipe: signal handlers are installed; ready to claim work."""
PARENT_CHECK_INTERVAL = 0.2
ORPHAN_GRACE = 2.4
"""Seconds an orphaned child has to release its jobs before it exits."""
PR_SET_PDEATHSIG = 1


_script: str | None = None
"""The script that this process loads to find a handler in it."""


@contextmanager
def loading_script(path: str) -> Iterator[None]:
    """Reject connections to the database while the block loads this script."""
    global _script
    _script = path
    try:
        yield
    finally:
        _script = None


def reject_second_run() -> None:
    """Raise :class:`ConfigError` while a script is loaded to find a handler: its main part would run a second time."""
    if _script is not None:
        raise ConfigError(
            f"{_script} works with the database when it is loaded, so its main part would run a second time in the"
            ' process of a handler; move it below `if __name__ == "__main__":`'
        )


_pipe: int | None = None


def report_to_parent(state: bytes) -> None:
    """Report the state of this child to its supervisor, if it has one."""
    global _pipe
    if number := os.environ.pop(REPORT_PIPE, None):
        _pipe = int(number)
        os.set_inheritable(_pipe, False)
    if _pipe is not None:
        with suppress(OSError):
            os.write(_pipe, state)


def follow_parent(gone: Callable[[], object]) -> None:
    """In a child of a supervisor: when the supervisor has died, call ``gone`` in a thread, and exit soon after."""
    parent = int(os.environ.pop(PARENT, "0"))
    if not parent:
        return
    signal_at_parents_death(signal.SIGTERM)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_CHECK_INTERVAL)
        gone()
        time.sleep(ORPHAN_GRACE)
        os._exit(1)

    threading.Thread(target=watch, name="howdah-parent", daemon=True).start()


def signal_at_parents_death(number: int) -> None:
    """Make the kernel send this process a signal when the thread that started it ends; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def exit_description(code: int) -> str:
    """Describe how a process ended; a negative code is the signal that killed it.

    >>> exit_description(2), exit_description(-9), exit_description(-40)
    ('exited with code 2', 'was killed by SIGKILL', 'was killed by signal 40')
    """
    return f"exited with code {code}" if code >= 0 else f"was killed by {signal_name(-code)}"


def signal_name(number: int) -> str:
    """Name a signal; realtime signals have only a number.

    >>> signal_name(15), signal_name(40)
    ('SIGTERM', 'signal 40')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exit_as(code: int) -> NoReturn:
    """Exit as another process did: with its exit code, or by its signal (a negative code)."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
