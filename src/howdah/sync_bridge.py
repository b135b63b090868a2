"""The sync bridge: an event loop in a thread, in which synchronous code runs asynchronous calls.

There is one per process, created at the first call. A forked child has the object but not the thread, so it creates
its own. :func:`run_in_thread` runs one coroutine in a loop of its own instead.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from howdah.errors import ConfigError

T = TypeVar("T")

_guard = threading.Lock()
_bridge: SyncBridge | None = None
_inherited: list[SyncBridge] = []
"""Bridges of parent processes; kept, because closing their loops would disturb the parent."""


def call(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run what ``function`` returns in the bridge's loop, and wait for its result."""
    global _bridge
    with _guard:
        if _bridge is None:
            _bridge = SyncBridge()
        bridge = _bridge
    return bridge.call(function)


def is_of(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether this is the bridge's loop."""
    return _bridge is not None and _bridge.loop is loop


def run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end in a new thread with its own event loop, for tests; a loop may be running here."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(asyncio.run(work))
        except BaseException as error:
            done.set_exception(error)

    # Not asyncio.run here: it would unset the event loop that a test runner keeps for this thread. A daemon,
    # so that Ctrl-C ends a test whose job never ends.
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), name="howdah-testing", daemon=True).start()
    return done.result()


def reject_in_loop(instead: str) -> None:
    """Raise if an event loop is running, because a synchronous call would block it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError(f"an event loop is running here; {instead}")


class SyncBridge:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="howdah-bridge", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run what ``function`` returns, and wait for its result."""
        if threading.current_thread() is self._thread:
            raise ConfigError("a synchronous call cannot be made while the jobs of another one are being produced")

        async def run() -> T:
            return await function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result()

    def stop(self) -> None:
        """End the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)


def _stop() -> None:
    if _bridge is not None:
        _bridge.stop()


def _forked() -> None:
    global _guard, _bridge
    _guard = threading.Lock()  # a thread that does not exist in this process may hold the old lock
    if _bridge is not None:
        _inherited.append(_bridge)
        _bridge = None


os.register_at_fork(after_in_child=_forked)
atexit.register(_stop)
