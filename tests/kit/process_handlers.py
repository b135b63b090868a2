"""What handlers in processes do in the tests."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

from howdah import Cancel, Poison, Retry, Snooze, current_job


def where(x: int) -> list[int]:
    return [os.getpid(), x, current_job().id]


def raises() -> None:
    raise ValueError("on purpose")


def exits() -> None:
    sys.exit(7)


def dies() -> None:
    os._exit(9)


def is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def segfaults() -> None:
    ctypes.string_at(0)


def runs_out_of_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (512 * 1024 * 1024, 512 * 1024 * 1024))
    hoard = []
    while True:
        hoard.append(bytearray(16 * 1024 * 1024))


def loops_for_ever() -> None:
    while True:
        pass


def chooses(what: str) -> object:
    match what:
        case "snooze":
            return Snooze(500)
        case "cancel":
            return Cancel("no")
        case "poison":
            raise Poison("bad")
        case "key":
            raise KeyError("k")
        case _:
            raise Retry("later", after=900)


def raises_a_group() -> None:
    raise ExceptionGroup("two", [KeyError("k"), Poison("bad")])
