"""Ends a process that a handler forked and that returned from the handler.

The job belongs to the parent. The fork must neither report an outcome nor continue the parent's work: it would read
from and write to the parent's sockets.
"""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

from howdah.job import Job, current

inside = False
"""True if this process was forked by a handler."""


def settle() -> None:
    """Declare that this process runs handlers of its own from now on, even if a handler forked it."""
    global inside
    inside = False


def end_if_forked(error: BaseException | None = None) -> None:
    """Called when a handler has ended; does not return in a process that the handler forked."""
    if inside:
        _end(error)


def _end(error: BaseException | None) -> NoReturn:
    """Exit as Python does: with code 0, with that of a :class:`SystemExit`, or with 1 and a traceback."""
    code: object = 0
    if isinstance(error, SystemExit):
        code = error.code if error.code is not None else 0
    elif error is not None:
        code = 1
        with suppress(BaseException):
            traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):
            stream.flush()
    os._exit(code & 0xFF if isinstance(code, int) else 1)


def _after_fork() -> None:
    global inside
    inside = inside or isinstance(current.get(None), Job)


os.register_at_fork(after_in_child=_after_fork)
