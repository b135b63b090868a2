"""Running coroutines from synchronous tests and fixtures."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from howdah.errors import ConfigError

T = TypeVar("T")


def complete(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end in a thread with its own event loop, even if a loop is running here."""
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


def refuse_in_loop(instead: str) -> None:
    """Raise if an event loop is running, because a synchronous call would block it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError(f"an event loop is running here; {instead}")
