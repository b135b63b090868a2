"""Background loops that survive outages, waits with a timeout, and stop signals."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

from howdah import telemetry

log = logging.getLogger("howdah")

LONGEST_BACKOFF = 3.0
"""Seconds between two tries at most, so that the end of a long outage is noticed within five seconds."""
REPEAT_AFTER = 30.0
LOG_INTERVAL = 1.0
"""Seconds between two log lines about the same thing."""
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_reported: dict[str, float] = {}


class Outage:
    """The outage of one operation: logged when it starts, at intervals while it lasts, and when it ends."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failures = 0
        self._since = 0.0
        self._logged_at = -REPEAT_AFTER
        """Time of the last log line, by the monotonic clock."""

    def fail(self, error: BaseException) -> float:
        """Count a failure; returns the backoff before the next try in seconds, with jitter."""
        now = time.monotonic()
        if self.failures == 0:
            self._since = now
            telemetry.emit("loop.fail", loop=self.name, error=error)
        if now - self._logged_at >= REPEAT_AFTER and now - _reported.get(self.name, -LOG_INTERVAL) >= LOG_INTERVAL:
            self._logged_at = _reported[self.name] = now
            log.warning("%s failed (%s: %s); trying again", self.name, type(error).__name__, error)
        self.failures += 1
        longest = min(LONGEST_BACKOFF, 0.1 * float(2 ** min(self.failures, 10)))
        return random.uniform(0.5, 1.0) * longest  # noqa: S311

    def heal(self) -> None:
        """End the outage, if there is one."""
        if self.failures:
            seconds = time.monotonic() - self._since
            if self._logged_at > 0:
                log.info("%s works again after %.1f s and %d failures", self.name, seconds, self.failures)
            telemetry.emit("loop.heal", loop=self.name, seconds=seconds, failures=self.failures)
            self.failures, self._logged_at = 0, -REPEAT_AFTER


async def wait(event: asyncio.Event, seconds: float) -> bool:
    """Wait for ``event``, at most ``seconds``; returns whether it is set."""
    if event.is_set():
        return True
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True


async def wait_any(seconds: float | None, *events: asyncio.Event) -> None:
    """Wait until one of ``events`` is set, at most ``seconds``."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


async def end_within(seconds: float, *tasks: asyncio.Task[Any]) -> None:
    """Wait for tasks to end, at most ``seconds``, then cancel them; their errors are not raised here."""
    if not tasks:
        return
    _, late = await asyncio.wait(tasks, timeout=seconds)
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=1.0)


async def every(seconds: float, tick: Callable[[], Awaitable[object]], *, name: str, stop: asyncio.Event) -> None:
    """Call ``tick`` now and then every ``seconds``, until ``stop`` is set.

    Stopping waits for the current tick, so that no transaction is interrupted. A tick that raises is
    logged once per outage and repeated with backoff and jitter.
    """
    outage = Outage(name)
    while not stop.is_set():
        try:
            await tick()
        except Exception as error:
            pause = max(outage.fail(error), min(seconds, LONGEST_BACKOFF))
        else:
            outage.heal()
            pause = seconds
        await wait(stop, pause)


def on_signals(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    """Call ``first`` at the first TERM, INT or HUP and ``second`` at the next; returns the function that undoes it.

    A HUP that is ignored, as under nohup, stays ignored.
    """
    loop = asyncio.get_running_loop()
    seen = 0

    def handle() -> None:
        nonlocal seen
        seen += 1
        (first if seen == 1 else second)()

    numbers = [each for each in STOPS if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]
    for number in numbers:
        loop.add_signal_handler(number, handle)

    def undo() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    return undo
