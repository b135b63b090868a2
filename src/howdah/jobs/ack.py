"""Records the outcomes of attempts: successes by one fast statement, all others by the SQL function ``ack``.

A batch that the database rejects is halved until the culprit is alone. Outcomes are cleaned before they come here, so
this is for values that were not foreseen: the culprit is recorded as failed, or as done without its result.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import asyncpg

from howdah.jobs.hold import Holds
from howdah.outcome import Ack, Outcome
from howdah.postgres.database import UNCERTAIN, Session
from howdah.postgres.sql import columns
from howdah.redact import LONGEST_MESSAGE, keep

log = logging.getLogger("howdah")

REJECTIONS = ("22", "23", "54", "P0")
"""Classes of SQLSTATE caused by values: data, integrity, program limit, raised by a trigger."""

RecordBatch = Callable[[list[Ack]], Awaitable[list[Ack]]]


def is_rejection(error: BaseException) -> bool:
    """Return whether the database or the driver rejected a value; other errors are outages or bugs."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "")[:2] in REJECTIONS
    return isinstance(error, ValueError | TypeError | OverflowError)  # the driver's own DataError is a ValueError


async def record_split(record: RecordBatch, acks: Sequence[Ack]) -> tuple[list[Ack], set[int]]:
    """Record a rejected batch in halves; return the accepted acks and the leases of those that cannot be recorded."""
    if len(acks) <= 1:
        return await _record_alone(record, acks)
    accepted: list[Ack] = []
    unrecorded: set[int] = set()
    half = len(acks) // 2
    for part in (list(acks[:half]), list(acks[half:])):
        try:
            accepted += await record(part)
        except Exception as error:
            if not is_rejection(error):
                raise
            some, more = await record_split(record, part)
            accepted += some
            unrecorded |= more
    return accepted, unrecorded


async def _record_alone(record: RecordBatch, acks: Sequence[Ack]) -> tuple[list[Ack], set[int]]:
    """Record one outcome, without the values of its handler if they are rejected."""
    for ack in acks:
        try:
            return await record([ack]), set()  # the rejection may have been caused by another ack of the batch
        except Exception as error:
            if not is_rejection(error):
                raise
            log.error("the database rejected the outcome of job %s (%s): %s", ack.job.id, ack.job.kind, error)
            _reduce(ack, error)
        try:
            return await record([ack]), set()
        except Exception as error:
            if not is_rejection(error):
                raise
            log.error(
                "no outcome of job %s (%s) can be stored; its lease expires and the job runs again",
                ack.job.id,
                ack.job.kind,
            )
    return [], {ack.job.token for ack in acks}


def _reduce(ack: Ack, error: BaseException) -> None:
    """Remove every value that came from the handler. A success stays a success."""
    message = keep(f"the database rejected it: {type(error).__name__}: {error}", LONGEST_MESSAGE)
    if ack.outcome is Outcome.OK:
        ack.error = "ResultNotStored"
    else:
        ack.error, message = "OutcomeNotStored", f"{ack.outcome.value}: {message}"
        ack.outcome = Outcome.FAILED
    ack.result = ack.traceback = ack.hold = None
    ack.delay, ack.message = 0.0, message


CODES = {
    Outcome.OK: b"d",
    Outcome.FAILED: b"f",
    Outcome.POISON: b"f",
    Outcome.CANCELLED: b"c",
    Outcome.RETRY: b"r",
    Outcome.SNOOZED: b"s",
    Outcome.RELEASED: b"b",
}
OK = Outcome.OK  # an enum lookup costs as much as a dictionary
FATES = {code.decode(): outcome for outcome, code in CODES.items() if outcome is not Outcome.POISON}

MOST_UNRECORDED = 1000
Record = Callable[[int, list[Ack], list[int]], Awaitable[list[Ack]]]


class AckRecorder:
    """Records outcomes over one connection."""

    def __init__(self, session: Session, sql: Mapping[str, str], expect: Callable[[float], None], holds: Holds) -> None:
        self._acks = session
        self._sql = sql
        self._expect = expect
        self._holds = holds
        self._unrecorded: set[int] = set()
        """Leases with a job whose outcome could not be stored: they are kept until they expire."""
        self._interrupted = False
        """True if a reply to ``ack_done`` was ever lost; only then can an ack be a repetition."""

    async def ack(self, node: int, acks: Sequence[Ack], finished: Sequence[int], *, alone: bool = True) -> list[Ack]:
        """Record outcomes of a node; return the acks whose lease was valid, with their final outcome.

        ``alone``: no other call reports on the same jobs at the same time. The fast statement for successes needs
        that, and that nothing was reported of them before: it does not see a job that is deleted meanwhile.
        """
        successes, other = _sort(acks) if alone else ([], list(acks))
        if self._interrupted:
            other += [ack for ack in successes if ack.unsure]
            successes = [ack for ack in successes if not ack.unsure]
        accepted: list[Ack] = []
        of_successes = {ack.job.token for ack in successes}
        early = self._finished([token for token in finished if token not in of_successes])
        if other or early:  # first: the successes may end the lease
            accepted += await self._try(self._ack_any, node, other, early)
        if successes:
            late = self._finished([token for token in finished if token in of_successes])
            accepted += await self._try(self._ack_done, node, successes, late)
        return accepted

    async def _try(self, record: Record, node: int, acks: list[Ack], finished: list[int]) -> list[Ack]:
        """Record outcomes in one batch; split the batch if the database rejects one of them."""
        try:
            return await record(node, acks, finished)
        except Exception as error:
            if not acks or not is_rejection(error):
                raise
        # by the function: a success without its result has an error text, which the fast statement does not store
        accepted, unrecorded = await record_split(lambda part: self._ack_any(node, part, []), acks)
        self._unrecorded = {*list(self._unrecorded)[-MOST_UNRECORDED:], *unrecorded}
        if over := self._finished(finished):
            await self._ack_any(node, [], over)
        return accepted

    def _finished(self, finished: Sequence[int]) -> list[int]:
        """Return the leases without an unrecorded outcome."""
        return [token for token in finished if token not in self._unrecorded] if self._unrecorded else list(finished)

    async def _ack_done(self, node: int, acks: list[Ack], finished: list[int]) -> list[Ack]:
        left: list[Ack] = []
        over: set[int] = set()
        while acks:
            tokens = Counter([ack.job.token for ack in acks])
            keys = [(ack.job.key, ack.job.id) for ack in acks if ack.job.key is not None]
            try:
                rows = await self._acks.fetch(
                    self._sql["ack_done"],
                    node,
                    list(tokens),
                    list(tokens.values()),
                    array([ack.job.id for ack in acks]),
                    array([ack.job.attempt for ack in acks]),
                    array([ack.took for ack in acks]),
                    results if any(results := [ack.result for ack in acks]) else [],
                    [key for key, _ in keys],
                    [id for _, id in keys],
                )
            except asyncpg.UniqueViolationError:  # a repetition: the function ignores what is already recorded
                return await self._ack_any(node, acks + left, finished)
            except UNCERTAIN:
                self._interrupted = True
                for ack in acks:
                    ack.unsure = True
                raise
            held = {row[0] for row in rows}
            if len(held) == len(tokens):
                over = {token for token, is_over in rows if is_over}
                break
            left += [ack for ack in acks if ack.job.token not in held]
            acks = [ack for ack in acks if ack.job.token in held]
            finished = [token for token in finished if token in held]
        rest = [token for token in finished if token not in over]
        if rest and acks:
            # The node has finished these leases, but the database counts jobs without an outcome: those recorded by
            # their handler's own transaction, or one that was lost here. Releasing them requeues the latter.
            await self._acks.fetch(self._sql["release"], node, rest)
        # a missing lease may have ended with these very outcomes, if only the reply was lost
        return acks + (await self._ack_any(node, left, []) if left else [])

    async def _ack_any(self, node: int, acks: list[Ack], finished: list[int]) -> list[Ack]:
        fetch = partial(self._holds.put_with, acks) if any(ack.hold for ack in acks) else self._acks.fetch
        rows = await fetch(
            self._sql["ack"],
            node,
            *columns(
                [
                    (
                        ack.job.token,
                        ack.job.id,
                        ack.job.attempt,
                        code_of(ack),
                        ack.delay,
                        ack.took,
                        ack.result,
                        ack.error,
                        ack.message,
                        ack.traceback,
                    )
                    for ack in acks
                ],
                10,
            ),
            finished,
        )
        fates = {(token, id): fate for token, id, fate in rows}
        accepted = [ack for ack in acks if (ack.job.token, ack.job.id) in fates]
        for ack in accepted:
            fate = fates[ack.job.token, ack.job.id]
            if fate != code_of(ack).decode():  # a cancel request, the last attempt, or a commit whose reply was lost
                ack.outcome = FATES[fate]
            if fate in "rs":
                self._expect(ack.delay)
        return accepted


def _sort(acks: Sequence[Ack]) -> tuple[list[Ack], list[Ack]]:
    """Split acks into successes and the others, such as a success with an error text because of its result."""
    successes = [ack for ack in acks if ack.outcome is OK and ack.error is None]
    if len(successes) == len(acks):
        return successes, []
    quick = set(map(id, successes))
    return successes, [ack for ack in acks if id(ack) not in quick]


def code_of(ack: Ack) -> bytes:
    """Return the outcome code of the SQL function ``ack``; a release with a delay is a snooze."""
    return b"s" if ack.outcome is Outcome.RELEASED and ack.delay else CODES[ack.outcome]


def array(numbers: list[int]) -> str:
    """Return integers as a PostgreSQL array literal.

    >>> array([1, 2])
    '{1, 2}'
    """
    return "{" + repr(numbers)[1:-1] + "}"
