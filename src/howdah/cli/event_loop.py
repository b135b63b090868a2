"""The event loop of a node, which survives what handlers do to it.

A task that a handler left behind may raise SystemExit or KeyboardInterrupt, and a handler may stop the loop: asyncio
then leaves the loop, and the process would end. The loop is entered again instead. A handler may also cancel every task
it finds: tasks of the node refuse that.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from howdah.worker.cancellation import make_task

T = TypeVar("T")
log = logging.getLogger("howdah")

MOST_EXITS = 1000
"""Maximum number of restarts of the loop before the process exits."""


def run(main: Coroutine[Any, Any, T], factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """Run a coroutine to its end, in a loop of its own."""
    with asyncio.Runner(loop_factory=factory) as runner:
        loop = runner.get_loop()
        loop.set_task_factory(make_task)  # type: ignore[arg-type]
        asyncio.set_event_loop(loop)
        running = loop.create_task(main, name="howdah main")
        for _ in range(MOST_EXITS):
            try:
                return loop.run_until_complete(running)
            except (SystemExit, KeyboardInterrupt) as error:
                if running.done() or _is_ours(error):
                    raise
                log.error("a task that a handler left behind raised %r; the node continues", error)
            except RuntimeError:
                if running.done():
                    raise
                log.error("a handler stopped the event loop; the node continues")
        raise SystemExit("the event loop was left too often")


def _is_ours(error: BaseException) -> bool:
    """Return whether Ctrl-C was pressed before the node handled signals."""
    return isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler
