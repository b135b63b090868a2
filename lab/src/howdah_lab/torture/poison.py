"""Poison: jobs that fail in every way. Each must end in its expected state, and affect no other job."""

from __future__ import annotations

import sys
import time
from typing import Any

import msgspec

from howdah import Event, Poison, Transaction
from howdah_lab.torture.app import AGAIN, app, write
from howdah_lab.torture.crashing_handlers import ATTEMPTS, CRASHING
from howdah_lab.torture.outcomes import bring


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN)
async def raises(mark: int) -> None:
    """Raises what is no Exception."""
    write("start", "poison", mark)
    raise BaseException("on purpose")


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN)
async def spoiled(mark: int) -> None:
    """Says itself that it can never succeed."""
    write("start", "poison", mark)
    raise Poison("on purpose")


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN)
async def exits(mark: int) -> None:
    """Wants the process to end."""
    write("start", "poison", mark)
    sys.exit(3)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN)
async def blocks(mark: int) -> None:
    """Blocks the event loop of its node for a second, then fails."""
    write("start", "poison", mark)
    time.sleep(1.0)  # noqa: ASYNC251 - on purpose
    raise ValueError("on purpose")


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN)
async def hostile(mark: int, name: str, seed: int) -> Any:
    """Has a hostile outcome."""
    write("start", "poison", mark)
    return bring(name, seed)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, transactional=True)
async def hostile_in_transaction(tx: Transaction, mark: int, name: str, seed: int) -> Any:
    """The same, with its outcome in the commit of its transaction."""
    write("start", "poison", mark)
    return bring(name, seed)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN)
def hostile_in_thread(mark: int, name: str, seed: int) -> Any:
    """The same in a thread."""
    write("start", "poison", mark)
    return bring(name, seed)


@app.task(queue="jobs", max_attempts=ATTEMPTS, retry=AGAIN, executor="process")
def hostile_in_process(mark: int, name: str, seed: int) -> Any:
    """The same in a process of its own, from which the outcome has to be told."""
    return bring(name, seed)


@app.task(queue="fleet", max_attempts=ATTEMPTS, retry=AGAIN)
async def hostile_over_http(mark: int, name: str, seed: int) -> Any:
    """The same without a database, where the outcome is sent to the control plane."""
    write("start", "poison", mark)
    return bring(name, seed)


@app.event
class Unstorable(msgspec.Struct, frozen=True):
    """An event whose handling has a hostile outcome."""

    name: str
    seed: int


@app.consumer("unstorable", types=[Unstorable], on_failure="park", max_failures=1)
async def unstorable(event: Event) -> Any:
    """Parks the events it cannot handle, and continues."""
    return bring(event.data.name, event.data.seed)


KINDS = (raises, spoiled, exits, blocks, *CRASHING)
"""Tasks that can only fail."""
HOSTILE: dict[Any, int] = {
    hostile: 5,
    hostile_in_transaction: 5,
    hostile_in_thread: 5,
    hostile_over_http: 3,
    hostile_in_process: 1,
}
"""Tasks with an outcome by name, and how often each is asked for."""
