"""The child side of the supervisor: reports its state to the parent, and ends when the parent has died."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

PARENT = "HOWDAH_SUPERVISOR"
"""Environment variable of a child with the process id of its supervisor."""
TELL = "HOWDAH_TELL_SUPERVISOR"
"""Environment variable of a child with the file descriptor of the pipe to its supervisor."""
LISTENS, READY = b"l", b"r"
"""Bytes a child writes to the pipe: signal handlers are installed; ready to claim work."""
LOOK_EVERY = 0.2
LAST_SECONDS = 2.4
"""Seconds an orphaned child has to release its jobs before it exits."""
PR_SET_PDEATHSIG = 1


_told: int | None = None


def tell_parent(word: bytes) -> None:
    """Report the state of this child to its supervisor, if it has one."""
    global _told
    if number := os.environ.pop(TELL, None):
        _told = int(number)
        os.set_inheritable(_told, False)
    if _told is not None:
        with suppress(OSError):
            os.write(_told, word)


def follow_parent(gone: Callable[[], object]) -> None:
    """In a child of a supervisor: when the supervisor has died, call ``gone`` in a thread, and exit soon after."""
    parent = int(os.environ.pop(PARENT, "0"))
    if not parent:
        return
    signal_at_parents_death(signal.SIGTERM)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_EVERY)
        gone()
        time.sleep(LAST_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="howdah-parent", daemon=True).start()


def signal_at_parents_death(number: int) -> None:
    """Make the kernel send this process a signal when the thread that started it ends; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
