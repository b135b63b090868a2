"""Records a batch of outcomes of which the database refuses one: halves it until the culprit is alone.

Every outcome is cleaned before it comes here, so this is for what nobody thought of. The neighbours of the culprit are
recorded as they are, and it is recorded as failed, or as done without its result.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import asyncpg

from howdah.outcome import Ack, Outcome
from howdah.scrub import LONGEST_MESSAGE, keep

log = logging.getLogger("howdah")

REFUSALS = ("22", "23", "54", "P0")
"""Classes of SQLSTATE that say something about the values: data, integrity, program limit, raised by a trigger."""

Record = Callable[[list[Ack]], Awaitable[list[Ack]]]


def is_refusal(error: BaseException) -> bool:
    """Whether the database, or the driver before it, refused values; other errors are outages, or mistakes of ours."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "")[:2] in REFUSALS
    return isinstance(error, ValueError | TypeError | OverflowError)  # the driver's own DataError is a ValueError


async def record_split(record: Record, acks: Sequence[Ack]) -> tuple[list[Ack], set[int]]:
    """Record refused outcomes in parts; returns those accepted, and the leases of those that could not be recorded."""
    if len(acks) <= 1:
        return await _record_alone(record, acks)
    accepted: list[Ack] = []
    unrecorded: set[int] = set()
    half = len(acks) // 2
    for part in (list(acks[:half]), list(acks[half:])):
        try:
            accepted += await record(part)
        except Exception as error:
            if not is_refusal(error):
                raise
            some, more = await record_split(record, part)
            accepted += some
            unrecorded |= more
    return accepted, unrecorded


async def _record_alone(record: Record, acks: Sequence[Ack]) -> tuple[list[Ack], set[int]]:
    """Record what is left of one outcome without the values that were refused."""
    for ack in acks:
        try:
            return await record([ack]), set()  # what was refused may have been the neighbourhood
        except Exception as error:
            if not is_refusal(error):
                raise
            log.error("the database refused the outcome of job %s (%s): %s", ack.job.id, ack.job.kind, error)
            _reduce(ack, error)
        try:
            return await record([ack]), set()
        except Exception as error:
            if not is_refusal(error):
                raise
            log.error("no outcome of job %s (%s) can be stored; its lease runs out", ack.job.id, ack.job.kind)
    return [], {ack.job.token for ack in acks}


def _reduce(ack: Ack, error: BaseException) -> None:
    """Leave nothing in an outcome that was given by its handler. Work that was done stays done."""
    message = keep(f"the database refused it: {type(error).__name__}: {error}", LONGEST_MESSAGE)
    if ack.outcome is Outcome.OK:
        ack.error = "ResultNotStored"
    else:
        ack.error, message = "OutcomeNotStored", f"{ack.outcome.value}: {message}"
        ack.outcome = Outcome.FAILED
    ack.result = ack.traceback = ack.hold = None
    ack.delay, ack.message = 0.0, message
