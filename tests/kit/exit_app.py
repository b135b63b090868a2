"""An app whose process has threads of its own and something to do at exit: ``-a kit.exit_app:app``."""

from __future__ import annotations

import atexit
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from howdah import Howdah

app = Howdah()
pool = ThreadPoolExecutor(thread_name_prefix="asgiref")
atexit.register(lambda: print("flushed at exit", flush=True))


@app.task
def uses_a_pool(seconds: float) -> None:
    """Leaves an idle thread of another library behind."""
    pool.submit(time.sleep, 0).result()
    print("uses_a_pool begins", flush=True)


@app.task
def leaves_a_thread(seconds: float) -> None:
    """Leaves a thread behind that never ends."""
    threading.Thread(target=time.sleep, args=(3600,), name="mine").start()


@app.task
def blocks(seconds: float) -> None:
    """Cannot be cancelled."""
    print("blocks begins", flush=True)
    time.sleep(seconds)
