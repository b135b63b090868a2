"""What a node is doing right now, on stderr, when somebody asks by signal."""

from __future__ import annotations

import asyncio
import faulthandler
import linecache
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from howdah.work.execute import Attempt

QUESTIONS = (signal.SIGUSR1, signal.SIGTTIN)


def dump_on_signals(running: Callable[[], Sequence[Attempt]]) -> None:
    """At SIGUSR1 and SIGTTIN write all thread stacks, and the running jobs with their stacks."""

    def dump() -> None:
        # in one piece: other processes may be writing to the same place
        sys.stderr.write("\n".join(["", *describe_threads(), "", *describe(running()), ""]))
        sys.stderr.flush()

    for number in QUESTIONS:
        asyncio.get_running_loop().add_signal_handler(number, dump)
        # the main thread is written by C code before that, so also when a handler blocks the event loop; that code must
        # not look at other threads, which go on meanwhile
        faulthandler.register(number, file=sys.stderr, all_threads=False, chain=True)


def describe_threads() -> Iterator[str]:
    """Where each of the other threads stands."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for id, frame in sys._current_frames().items():
        if id != threading.get_ident():
            yield f"\nthread {names.get(id, id)}, most recent call last:"
            for outer, _ in reversed(list(traceback.walk_stack(frame))):
                yield from _lines(outer)


def describe(attempts: Sequence[Attempt]) -> Iterator[str]:
    """The table of running jobs, then where each of them stands."""
    yield f"{len(attempts)} running:"
    if attempts:
        yield f"{'id':>12}  {'attempt':>7}  {'seconds':>9}  kind"
    for attempt in attempts:
        job = attempt.job
        note = f"  ({'stuck after ' if attempt.stuck else ''}{attempt.why})" if attempt.why else ""
        yield f"{job.id:>12}  {job.attempt:>7}  {attempt.took / 1e6:>9.3f}  {job.kind}{note}"
    for attempt in attempts:
        if attempt.task is not None:
            yield f"\njob {attempt.job.id} ({attempt.job.kind}), most recent call last:"
            for frame in _frames(attempt.coroutine or attempt.task.get_coro()):
                yield from _lines(frame)


def _frames(waiting: Any) -> Iterator[FrameType]:
    """The frames of a suspended coroutine, down to what it waits for; ``Task.get_stack`` knows only the first."""
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None:
            yield frame
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)


def _lines(frame: FrameType) -> Iterator[str]:
    code = frame.f_code
    yield f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}'
    if line := linecache.getline(code.co_filename, frame.f_lineno).strip():
        yield f"    {line}"
