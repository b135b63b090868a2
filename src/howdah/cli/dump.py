"""What a node is doing right now, on stderr, when somebody asks by signal."""

from __future__ import annotations

import asyncio
import faulthandler
import linecache
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, TextIO

from howdah.work.execute import Attempt

QUESTIONS = (signal.SIGUSR1, signal.SIGTTIN)


def dump_on_signals(running: Callable[[], Sequence[Attempt]]) -> None:
    """At SIGUSR1 and SIGTTIN write all thread stacks, and the running jobs with their stacks."""
    loop = asyncio.get_running_loop()
    for number in QUESTIONS:
        loop.add_signal_handler(number, lambda: dump(running(), sys.stderr))
        # the threads are written by C code before that, so also when a handler blocks the event loop
        faulthandler.register(number, file=sys.stderr, all_threads=True, chain=True)


def dump(attempts: Sequence[Attempt], out: TextIO) -> None:
    """Write the table of running jobs, then where each of them stands."""
    print(f"\n{len(attempts)} running:", file=out)
    if attempts:
        print(f"{'id':>12}  {'attempt':>7}  {'seconds':>9}  kind", file=out)
    for attempt in attempts:
        job = attempt.job
        note = f"  ({'stuck after ' if attempt.stuck else ''}{attempt.why})" if attempt.why else ""
        print(f"{job.id:>12}  {job.attempt:>7}  {attempt.took / 1e6:>9.3f}  {job.kind}{note}", file=out)
    for attempt in attempts:
        if attempt.task is not None:
            print(f"\njob {attempt.job.id} ({attempt.job.kind}), most recent call last:", file=out)
            for frame in _frames(attempt.task.get_coro()):
                _write(frame, out)
    out.flush()


def _frames(waiting: Any) -> Iterator[FrameType]:
    """The frames of a suspended coroutine, down to what it waits for; ``Task.get_stack`` knows only the first."""
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None:
            yield frame
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)


def _write(frame: FrameType, out: TextIO) -> None:
    code = frame.f_code
    print(f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}', file=out)
    if line := linecache.getline(code.co_filename, frame.f_lineno).strip():
        print(f"    {line}", file=out)
