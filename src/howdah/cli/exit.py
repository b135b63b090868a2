"""The exit of a node's process: bounded in time whatever threads do, and never without the functions of ``atexit``.

Libraries flush in ``atexit`` what they have collected: Sentry, OpenTelemetry, log handlers.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from contextlib import suppress
from typing import NoReturn

log = logging.getLogger("howdah")

OWN_THREADS = "howdah"
"""Names of the threads that a node starts, also those that run handlers, begin with this."""
IDLE_TIMEOUT = 0.1
"""Seconds for idle threads of a node to end."""
FOREIGN_TIMEOUT = 15.0
"""Seconds for threads that are not the node's to end, after Python began to exit."""
EXIT_FUNCTIONS_TIMEOUT = 5.0
"""Seconds for the functions registered with ``atexit``, if threads keep Python from exiting by itself."""


def leave(code: int, running: int) -> None:
    """End the process at once if handlers still run (``running``, or threads of the node), else let Python exit."""
    threads = [each for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
    own = [each for each in threads if each.name.startswith(OWN_THREADS)]
    for thread in own:
        thread.join(IDLE_TIMEOUT / len(own))  # idle ones are on their way out
    stubborn = max(running, sum(thread.is_alive() for thread in own))  # a handler in a thread is in both
    if stubborn:
        # their jobs are released already; a thread or task that continues would keep the process alive for ever
        log.warning("%d handlers did not end when cancelled; leaving without them", stubborn)
        leave_now(code)
    if len(threads) > len(own):
        threading.Thread(target=_leave_late, args=(code,), name="howdah exit", daemon=True).start()


def leave_now(code: int) -> NoReturn:
    """Run the functions of ``atexit``, and end the process without waiting for its threads."""
    thread = threading.Thread(target=_run_exit_functions, name="howdah atexit", daemon=True)
    with suppress(RuntimeError):  # no thread can be started any more
        thread.start()
        thread.join(EXIT_FUNCTIONS_TIMEOUT)
    logging.shutdown()
    os._exit(code)


def _leave_late(code: int) -> None:
    """Python waits for threads of applications and libraries: as long as is reasonable, not for ever."""
    threading.main_thread().join()  # returns when Python begins to exit
    time.sleep(FOREIGN_TIMEOUT)
    log.warning("threads still run %g s after the end of the node; leaving without them", FOREIGN_TIMEOUT)
    leave_now(code)


def _run_exit_functions() -> None:
    with suppress(BaseException):
        atexit._run_exitfuncs()
