"""Recorder: how attempts ended, written down: the many plain successes in one stroke, all others the long way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import asyncpg

from howdah.jobs.holds import Holds
from howdah.jobs.split import is_refusal, record_split
from howdah.outcome import Ack, Outcome
from howdah.pg.database import UNSURE, Session, columns

CODES = {
    Outcome.OK: b"d",
    Outcome.FAILED: b"f",
    Outcome.POISON: b"f",
    Outcome.CANCELLED: b"c",
    Outcome.RETRY: b"r",
    Outcome.SNOOZED: b"s",
    Outcome.RELEASED: b"b",
}
OK = Outcome.OK  # looking an enum member up costs as much as a dictionary
FATES = {code.decode(): outcome for outcome, code in CODES.items() if outcome is not Outcome.POISON}

MOST_UNRECORDED = 1000
Record = Callable[[int, list[Ack], list[int]], Awaitable[list[Ack]]]


class Recorder:
    """Records outcomes over one connection."""

    def __init__(self, session: Session, sql: Mapping[str, str], expect: Callable[[float], None], holds: Holds) -> None:
        self._acks = session
        self._sql = sql
        self._expect = expect
        self._holds = holds
        self._unrecorded: set[int] = set()
        """Leases with a job of which no outcome could be stored: they are not over, and run out by themselves."""
        self._interrupted = False
        """Whether the reply to a quick ack was ever lost; only then can an ack be a repeated one."""

    async def ack(self, node: int, acks: Sequence[Ack], finished: Sequence[int], *, alone: bool = True) -> list[Ack]:
        """Record how attempts of a node ended; returns those that were still its, with their final outcome.

        ``alone``: no other call reports on the same jobs at the same time. The statement for plain successes needs
        that, and that nothing was reported of them before: it does not see a person who deletes the job meanwhile.
        """
        plain, other = _sort(acks) if alone else ([], list(acks))
        if self._interrupted:
            other += [ack for ack in plain if ack.unsure]
            plain = [ack for ack in plain if not ack.unsure]
        accepted: list[Ack] = []
        with_plain = {ack.job.token for ack in plain}
        early = self._over([token for token in finished if token not in with_plain])
        if other or early:  # first: they must not find their lease gone
            accepted += await self._try(self._ack_any, node, other, early)
        if plain:
            late = self._over([token for token in finished if token in with_plain])
            accepted += await self._try(self._ack_done, node, plain, late)
        return accepted

    async def _try(self, record: Record, node: int, acks: list[Ack], finished: list[int]) -> list[Ack]:
        """Record outcomes together; if the database refuses one of them, it must not hold up the others."""
        try:
            return await record(node, acks, finished)
        except Exception as error:
            if not acks or not is_refusal(error):
                raise
        accepted, unrecorded = await record_split(lambda part: record(node, part, []), acks)
        self._unrecorded = {*list(self._unrecorded)[-MOST_UNRECORDED:], *unrecorded}
        if over := self._over(finished):
            await self._ack_any(node, [], over)
        return accepted

    def _over(self, finished: Sequence[int]) -> list[int]:
        """The leases of which every job has an outcome that is recorded."""
        return [token for token in finished if token not in self._unrecorded] if self._unrecorded else list(finished)

    async def _ack_done(self, node: int, acks: list[Ack], finished: list[int]) -> list[Ack]:
        left: list[Ack] = []
        over: set[int] = set()
        while acks:
            tokens = Counter([ack.job.token for ack in acks])
            try:
                rows = await self._acks.fetch(
                    self._sql["ack_done"],
                    node,
                    list(tokens),
                    list(tokens.values()),
                    array([ack.job.id for ack in acks]),
                    array([ack.job.attempt for ack in acks]),
                    array([ack.took for ack in acks]),
                )
            except asyncpg.UniqueViolationError:  # a replay: the long way ignores what is already recorded
                return await self._ack_any(node, acks + left, finished)
            except UNSURE:
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
            # This node is through with these leases, yet the database counts jobs of theirs without an outcome: those
            # recorded by their handler's own transaction, or one that got lost here.
            await self._acks.fetch(self._sql["release"], node, rest)
        # a lease that is gone may have ended with these very outcomes, and only the answer was lost
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
            if fate != code_of(ack).decode():  # a cancel request, the last attempt, or a commit we had not heard of
                ack.outcome = FATES[fate]
            if fate in "rs":
                self._expect(ack.delay)
        return accepted


def _sort(acks: Sequence[Ack]) -> tuple[list[Ack], list[Ack]]:
    """Plain successes of jobs without a key, and the others."""
    plain = [
        ack for ack in acks if ack.outcome is OK and ack.result is None and ack.error is None and ack.job.key is None
    ]
    if len(plain) == len(acks):
        return plain, []
    quick = set(map(id, plain))
    return plain, [ack for ack in acks if id(ack) not in quick]


def code_of(ack: Ack) -> bytes:
    """The outcome as the function ``ack`` knows it. What is released with a delay waits as if it were snoozed."""
    return b"s" if ack.outcome is Outcome.RELEASED and ack.delay else CODES[ack.outcome]


def array(numbers: list[int]) -> str:
    """Whole numbers as PostgreSQL writes an array of them.

    >>> array([1, 2])
    '{1, 2}'
    """
    return "{" + repr(numbers)[1:-1] + "}"
