"""A child of a supervisor: it tells its parent how far it is, and ends when its parent is gone."""

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
"""The environment variable that tells a child the process id of its supervisor."""
TELL = "HOWDAH_TELL_SUPERVISOR"
"""The environment variable that tells a child the file descriptor its supervisor reads."""
LISTENS, READY = b"l", b"r"
"""What a child says there: from now on it heeds signals; from now on it works."""
LOOK_EVERY = 0.2
LAST_SECONDS = 2.4
"""How long an orphan has to hand back its jobs."""
PR_SET_PDEATHSIG = 1


_told: int | None = None


def tell_parent(word: bytes) -> None:
    """Tell the supervisor, if there is one, how far this child is."""
    global _told
    if number := os.environ.pop(TELL, None):
        _told = int(number)
        os.set_inheritable(_told, False)
    if _told is not None:
        with suppress(OSError):
            os.write(_told, word)


def follow_parent(gone: Callable[[], object]) -> None:
    """In a child of a supervisor: call ``gone`` in a thread when it is gone, and end soon after, come what may."""
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
    """Ask the kernel to send this process a signal when the thread that started it ends; does nothing but on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
