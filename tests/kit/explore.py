"""Explorer of interleavings: runs operations against each other and compares what is left with serial execution.

Two kinds of rounds. *In order*: the first operation's transaction stays open while the second runs, then commits or
rolls back. *Together*: two or three operations run at the same time, with random sleeps between and inside their
statements. After each round the tables must satisfy the invariants of the world, and must be as some serial order of
the same operations leaves them. An operation that passes by locked rows decides on each row alone: where rows have
nothing to do with each other, an order is looked for row by row then.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import asyncpg

from howdah.errors import KeyHeld
from kit.explore_sleeps import SLEEP
from kit.interleave import Form, ThreeConnections, meet, result_of
from kit.node import EVENTUALLY_TIMEOUT

LEGAL = (asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError, asyncpg.InFailedSQLTransactionError, KeyHeld)
"""Errors of a caller that lost against another; the caller tries again."""
LEGAL_CODES = {"HW001", "HW002", "HD409"}
"""A lost lease, a key that an open transaction holds, a stream that moved on."""
ENDINGS = ("itself", "itself", "commit", "rollback")
"""How an operation ends: each statement commits by itself, or they are one transaction."""
IN_ORDER = 2
"""Times a pair meets in order: the first commits, and rolls back."""
AGAIN = 4
"""Times an operation runs once more that passes by locked rows: until a claim of one row at a time leaves none."""
LONGEST_START = 0.01
"""Seconds by which an operation of a round may start later than another."""


Only = Callable[[Sequence[Form]], bool]
"""Which pairs of operations are explored."""


class World(Protocol):
    """Tables with a known content, the operations on them, and what must be true of them afterwards."""

    name: str
    forms: Sequence[Form]
    independent: bool
    """Whether the rows of a summary have nothing to do with each other; each begins with its id."""

    async def lay(self, conn: Any, forms: Sequence[Form]) -> Any:
        """Restore the known content; returns what the operations work on."""

    def excludes(self, forms: Sequence[Form]) -> bool:
        """Whether these operations never happen at the same time."""

    async def summary(self, conn: Any) -> Any:
        """The content, without what may differ between two runs of the same operations."""

    async def wrongs(self, conn: Any) -> list[str]:
        """The invariants that are violated."""

    def wrong_answer(self, form: Form, result: Any) -> str | None:
        """What is wrong with an answer, whatever else happened."""


@dataclass(frozen=True)
class Finding:
    """A round that left something wrong."""

    case: str
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.case}: " + "; ".join(self.wrong)


@dataclass
class RunningOperation:
    """One operation in a round, and what became of it."""

    form: Form
    ending: str
    result: Any = None
    error: BaseException | None = None

    def __str__(self) -> str:
        return f"[{self.form}, ends by {self.ending}: {self.error or self.result}]"

    @property
    def took(self) -> bool:
        """Whether it took effect, or will when its caller tries again."""
        return self.ending == "itself" or (self.ending == "commit" and not self.error)

    @property
    def again(self) -> bool:
        """Whether it runs once more: it passes by locked rows and may have had nothing to do, or it failed."""
        return self.took and bool(self.form.skips or self.error)


class Explorer:
    """Rounds on one world. ``conns``: one to look with, and at least two to act with."""

    def __init__(self, world: World, conns: Sequence[Any], seed: int, only: Only | None = None) -> None:
        self._world = world
        self._watch, *self._doers = conns
        self._random = random.Random(seed)
        self._only = only
        self._serial: dict[tuple[str, ...], Any] = {}
        self._seen: Counter[tuple[str, ...]] = Counter()
        """Pairs that met in order."""
        self.rounds = 0
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.errors: Counter[str] = Counter()

    async def explore(self, more: Callable[[], bool], stop: int = 1) -> list[Finding]:
        """Go through all pairs of operations again and again while ``more()``, up to ``stop`` findings."""
        found: list[Finding] = []
        for forms, ordered in self._cases():
            if len(found) >= stop or not more():
                break
            finding = await (self._in_order(*forms) if ordered else self._together(forms))
            self.rounds += 1
            for pair in itertools.combinations(sorted(map(str, forms)), 2):
                self.pairs[pair] += 1
            if finding:
                found.append(finding)
        return found

    def _cases(self) -> Iterator[tuple[list[Form], bool]]:
        forms = self._world.forms
        pairs = [
            list(pair)
            for pair in itertools.product(forms, repeat=2)
            if not self._world.excludes(pair) and (self._only is None or self._only(pair))
        ]
        while pairs:
            self._random.shuffle(pairs)
            for pair in pairs:
                if self._seen[tuple(map(str, pair))] < IN_ORDER:  # the same each time, but for how the first ends
                    yield pair, True
                third = [*pair, self._random.choice(forms)]
                fits = self._random.random() < 0.2 and len(self._doers) > 2 and not self._world.excludes(third)
                yield third if fits else pair, False

    # ---------------------------------------------------------------- rounds

    async def _in_order(self, first: Form, second: Form) -> Finding | None:
        """The second runs while the first is neither committed nor rolled back: the first time it is committed."""
        pair = (str(first), str(second))
        commit = not self._seen[pair]
        self._seen[pair] += 1
        prepared = await self._world.lay(self._watch, (first, second))
        three = ThreeConnections(self._watch, *self._doers[:2])
        for conn in three[1:]:
            await conn.execute(f"set {SLEEP} = 'off'")
        doings = [RunningOperation(first, "commit" if commit else "rollback"), RunningOperation(second, "itself")]
        met = await meet(
            three,
            lambda conn: self._do(prepared, doings[0], conn),
            lambda conn: self._do(prepared, doings[1], conn),
            commit=commit,
        )
        order = "committed" if commit else "rolled back"
        case = (
            f"{doings[0]}, {order} {'as soon as' if met.waited else 'while'} {'waits for it: ' if met.waited else ''}"
        )
        return await self._judge(prepared, case + str(doings[1]), doings)

    async def _together(self, forms: Sequence[Form]) -> Finding | None:
        """All of them run at the same time, slowed down at random."""
        prepared = await self._world.lay(self._watch, forms)
        doings = [RunningOperation(form, self._random.choice(ENDINGS)) for form in forms]
        starts = [self._random.random() * LONGEST_START for _ in forms]
        running = [
            self._start(prepared, doing, conn, start)
            for doing, conn, start in zip(doings, self._doers, starts, strict=False)
        ]
        await asyncio.wait_for(asyncio.gather(*running), EVENTUALLY_TIMEOUT)
        return await self._judge(prepared, " together with ".join(map(str, doings)), doings)

    async def _start(self, prepared: Any, doing: RunningOperation, conn: Any, after: float) -> None:
        await conn.execute(f"set {SLEEP} = 'on'")
        await asyncio.sleep(after)
        if doing.ending == "itself":
            await self._do(prepared, doing, conn)
            return
        transaction = conn.transaction()
        await transaction.start()
        await self._do(prepared, doing, conn)
        await asyncio.sleep(after)
        await (transaction.commit() if doing.ending == "commit" and not doing.error else transaction.rollback())

    async def _do(self, prepared: Any, doing: RunningOperation, conn: Any) -> None:
        try:
            doing.result = await doing.form.do(prepared, conn)
        except (asyncpg.PostgresError, KeyHeld) as error:
            doing.error = error
            self.errors[f"{type(error).__name__} of {doing.form}"] += 1

    # ---------------------------------------------------------------- judging

    async def _judge(self, prepared: Any, case: str, doings: Sequence[RunningOperation]) -> Finding | None:
        wrong = [f"{doing.form} raised {doing.error!r}" for doing in doings if not _is_legal(doing)]
        answers = [self._world.wrong_answer(doing.form, doing.result) for doing in doings if doing.result is not None]
        wrong += [answer for answer in answers if answer]
        left = [await self._world.summary(self._watch)]
        wrong += await self._world.wrongs(self._watch)
        again = [doing.form for doing in doings if doing.again]
        if again and not wrong:
            for form in again * AGAIN:
                await result_of(form.do(prepared, self._watch))
                left.append(await self._world.summary(self._watch))
            wrong += [
                f"{each}, after {', '.join(map(str, again))} again" for each in await self._world.wrongs(self._watch)
            ]
        if not wrong and not await self._is_serial(left, doings, again):
            expected = await self._in_turn([doing.form for doing in doings if doing.took])
            wrong.append(f"no serial order leaves this; against this order: {_difference(left[0], expected)}")
        return Finding(case, tuple(wrong)) if wrong else None

    async def _is_serial(self, left: Sequence[Any], doings: Sequence[RunningOperation], again: Sequence[Form]) -> bool:
        """Whether some order of the operations that took effect leaves the same.

        ``left``: after the round, and after ``again`` ran once more.
        """
        for order in itertools.permutations([doing.form for doing in doings if doing.took]):
            if await self._in_turn(order) in left:
                return True
            if any([await self._in_turn([*order, *more]) in left[1:] for more in _repeated(again)]):
                return True
        if self._world.independent and any(doing.form.skips for doing in doings if doing.took):
            return await self._is_serial_by_row(left, doings, again)
        return False

    async def _is_serial_by_row(
        self, left: Sequence[Any], doings: Sequence[RunningOperation], again: Sequence[Form]
    ) -> bool:
        """The same for each row alone: an operation that passes by a locked row may take the others."""
        orders = list(itertools.permutations([doing.form for doing in doings if doing.took]))
        serial = [await self._in_turn(order) for order in orders]
        repeated = serial + [await self._in_turn([*order, *more]) for order in orders for more in _repeated(again)]
        return any(
            all(any(row in each[name] for each in allowed) for name, rows in summary.items() for row in rows)
            for summary, allowed in [(left[0], serial), *((each, repeated) for each in left[1:])]
        )

    async def _in_turn(self, forms: Sequence[Form]) -> Any:
        """What these operations leave, one after the other."""
        key = tuple(map(str, forms))
        if key not in self._serial:
            prepared = await self._world.lay(self._watch, forms)
            for form in forms:
                await result_of(form.do(prepared, self._watch))
            self._serial[key] = await self._world.summary(self._watch)
        return self._serial[key]


def _repeated(again: Sequence[Form]) -> list[list[Form]]:
    """The operations that run once more: once, and until nothing is left for them."""
    return [[*again], [*again] * AGAIN] if again else []


def _is_legal(doing: RunningOperation) -> bool:
    error = doing.error
    if isinstance(error, asyncpg.UndefinedTableError):  # another node has just dropped the partition
        return doing.form.act == "prune"
    if isinstance(error, asyncpg.ForeignKeyViolationError):  # the consumer was forgotten
        return doing.form.act == "park"
    if isinstance(error, asyncpg.UniqueViolationError):  # the job has an outcome already
        return doing.form.act == "handle" or doing.form.name.startswith(("in a transaction", "in a batch"))
    return error is None or isinstance(error, LEGAL) or getattr(error, "sqlstate", None) in LEGAL_CODES


def _difference(left: Any, expected: Any) -> str:
    """What is only in one of two summaries, which are dictionaries of lists."""
    parts = []
    for name in left:
        here, there = Counter(map(repr, left[name])), Counter(map(repr, expected[name]))
        if here != there:
            parts.append(f"{name}: {sorted((here - there).elements())} instead of {sorted((there - here).elements())}")
    return ", ".join(parts) or "nothing"
