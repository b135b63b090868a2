"""Hostile return values and exceptions of handlers, by name and at random.

Each is stored in a form that the database accepts; none may delay another job.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Literal, NoReturn

from howdah import Cancel, Poison, RateLimited, Retry, Snooze
from howdah.errors import CodedError, LeaseLost

State = Literal["done", "failed", "cancelled", "queued", "any"]
"""Expected final state of the job. ``queued``: it waits, in the far future; ``any``: undetermined, but it is finished
or waits."""

HUGE = 1e300
INFINITE = float("inf")
NAN = float("nan")
LONG = 2_000_000
"""Characters of a long text; what is kept of it is a thousandth."""
NUL, SURROGATE = "a\0b", "a\ud800b"


class Mute(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise SystemExit("on purpose")

    __repr__ = __str__


class Unreadable(Exception):
    """Reading its ``retry_after`` raises."""

    @property
    def retry_after(self) -> float:
        raise RuntimeError("on purpose")


class Hostile:
    """Its repr, iteration and comparison raise."""

    def __repr__(self) -> str:
        raise ValueError("on purpose")

    def __iter__(self) -> Iterator[int]:
        raise ValueError("on purpose")

    def __eq__(self, other: object) -> bool:
        raise ValueError("on purpose")

    __hash__ = None  # type: ignore[assignment]


def _named(name: str) -> BaseException:
    """An error whose class has this name."""
    kind = type("Named", (Exception,), {})
    kind.__qualname__ = name
    error: BaseException = kind("on purpose")
    return error


def _asking(after: Any) -> BaseException:
    """An error that wants to be tried again after so long."""
    error = ValueError("on purpose")
    error.retry_after = after  # type: ignore[attr-defined]
    return error


def _deep() -> list[Any]:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


def _endless() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


def _circle() -> BaseException:
    """An error that is the cause of its own cause."""
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    return one


RETURNED: dict[str, tuple[Callable[[], Any], State]] = {
    "snooze-infinite": (lambda: Snooze(INFINITE), "failed"),
    "snooze-nan": (lambda: Snooze(NAN), "failed"),
    "snooze-text": (lambda: Snooze("soon"), "failed"),  # type: ignore[arg-type]
    "snooze-negative": (lambda: Snooze(-1), "failed"),
    "snooze-huge": (lambda: Snooze(HUGE), "queued"),
    "snooze-googol": (lambda: Snooze(10**400), "queued"),
    "cancel-nul": (lambda: Cancel(NUL + SURROGATE), "cancelled"),
    "cancel-long": (lambda: Cancel("x" * LONG), "cancelled"),
    "cancel-number": (lambda: Cancel(7), "cancelled"),  # type: ignore[arg-type]
    "text-nul": (lambda: NUL, "done"),
    "text-surrogate": (lambda: {SURROGATE: SURROGATE}, "done"),
    "text-long": (lambda: "x" * LONG, "done"),
    "bytes": (lambda: b"\xff\0", "done"),
    "number-large": (lambda: 2**70, "done"),
    "number-googol": (lambda: 10**5000, "done"),
    "number-nan": (lambda: [NAN, INFINITE], "done"),
    "object": (object, "done"),
    "object-hostile": (Hostile, "done"),
    "deep": (_deep, "done"),
    "endless": (_endless, "done"),
    "class": (lambda: Hostile, "done"),
    "error": (lambda: ValueError("returned, not raised"), "done"),
    "generator": (lambda: (n for n in range(3)), "failed"),
}
"""Return values and the expected state of the job: work that was done stays done although its result cannot be kept."""

RAISED: dict[str, tuple[Callable[[], BaseException], State]] = {
    "retry-infinite": (lambda: Retry("on purpose", after=INFINITE), "failed"),
    "retry-nan": (lambda: Retry("on purpose", after=NAN), "failed"),
    "retry-text": (lambda: Retry("on purpose", after="soon"), "failed"),  # type: ignore[arg-type]
    "retry-huge": (lambda: Retry("on purpose", after=HUGE), "queued"),
    "asks-huge": (lambda: _asking(HUGE), "queued"),
    "asks-decimal": (lambda: _asking(Decimal("1e999999")), "queued"),
    "asks-nan": (lambda: _asking(NAN), "failed"),
    "asks-object": (lambda: _asking(Hostile()), "failed"),
    "asks-and-raises": (Unreadable, "failed"),
    "hold-text": (lambda: RateLimited("on purpose", retry_after=0.1, hold="soon"), "failed"),  # type: ignore[arg-type]
    "hold-nan": (lambda: RateLimited("on purpose", retry_after=0.1, hold=NAN), "failed"),
    "code-nul": (lambda: CodedError(NUL, code=NUL), "failed"),
    "name-nul": (lambda: _named(NUL), "failed"),
    "name-surrogate": (lambda: _named(SURROGATE), "failed"),
    "name-long": (lambda: _named("x" * LONG), "failed"),
    "message-nul": (lambda: ValueError(NUL), "failed"),
    "message-surrogate": (lambda: ValueError(SURROGATE), "failed"),
    "message-long": (lambda: ValueError("x" * LONG), "failed"),
    "mute": (Mute, "failed"),
    "lease-lost": (lambda: LeaseLost("by hand"), "failed"),
    "cancelled": (lambda: asyncio.CancelledError("by hand"), "failed"),
    "timeout": (lambda: TimeoutError("by hand"), "failed"),
    "exit": (lambda: SystemExit(3), "failed"),
    "exit-text": (lambda: SystemExit(NUL), "failed"),
    "interrupt": (lambda: KeyboardInterrupt("by hand"), "failed"),
    "generator-exit": (lambda: GeneratorExit("by hand"), "failed"),
    "stop-iteration": (lambda: StopIteration(7), "failed"),
    "stop-async-iteration": (lambda: StopAsyncIteration(7), "failed"),
    "recursion": (lambda: RecursionError("by hand"), "failed"),
    "memory": (lambda: MemoryError("by hand"), "failed"),
    "circle": (_circle, "failed"),
    "group": (lambda: BaseExceptionGroup("on purpose", [Poison(NUL), SystemExit(1)]), "failed"),
}
"""Exceptions and the expected state of the job."""

NAMES = (*RETURNED, *RAISED)


def state_of(name: str) -> State:
    """Return how a job with this outcome is to end."""
    return (RETURNED.get(name) or RAISED[name])[1]


def bring(name: str, seed: int) -> Any:
    """Return or raise the outcome of this name; of no name: one that is made up."""
    if name in RETURNED:
        return RETURNED[name][0]()
    if name in RAISED:
        raise RAISED[name][0]()
    return made_up(random.Random(seed))  # noqa: S311 - a run is to be repeated


# ---------------------------------------------------------------- at random


def made_up(chance: random.Random) -> Any:
    """Return or raise something hostile. It never holds its kind, which would make the jobs after it wait."""
    if chance.random() < 0.5:
        raise_error(chance)
    value = value_of(chance)
    soon = isinstance(value, int | float) and 0 <= value <= 1  # it would come again, without end
    return chance.choice([value, Snooze(HUGE if soon else value), Cancel(value)])


def value_of(chance: random.Random, depth: int = 0) -> Any:
    """Return a value made of hostile parts."""
    if depth < 3 and chance.random() < 0.3:
        parts = [value_of(chance, depth + 1) for _ in range(chance.randrange(4))]
        texts = [text_of(chance) for _ in parts]
        return chance.choice([parts, tuple(parts), dict(zip(texts, parts, strict=True)), set(texts)])
    number = chance.choice([0, -1, 1, 2**63, -(2**70), 10**400, HUGE, -HUGE, INFINITE, NAN, 1e-320, Decimal("NaN")])
    return chance.choice([number, text_of(chance), text_of(chance).encode("utf-8", "replace"), None, True, Hostile()])


def text_of(chance: random.Random) -> str:
    """Return a text of characters from everywhere, some of which no database can store."""
    ranges = ((0, 31), (32, 126), (0x80, 0xFF), (0x300, 0x36F), (0xD800, 0xDFFF), (0xFFF0, 0xFFFF), (0x1F000, 0x10FFFF))
    text = "".join(chr(chance.randint(*chance.choice(ranges))) for _ in range(chance.randrange(20)))
    return text * chance.choice([1, 1, 1, 1000, 20_000])


def raise_error(chance: random.Random) -> NoReturn:
    """Raise an error with hostile parts, alone, as the cause of another, or in a group."""
    kinds: list[type[BaseException]] = [ValueError, KeyError, OSError, SystemExit, KeyboardInterrupt, LeaseLost, Mute]
    kinds += [Poison, Retry, StopAsyncIteration, GeneratorExit, asyncio.CancelledError, RecursionError]
    error = chance.choice(kinds)(text_of(chance)) if chance.random() < 0.5 else _named(text_of(chance) or "x")
    if chance.random() < 0.5:
        error.retry_after = value_of(chance)  # type: ignore[attr-defined]
    match chance.randrange(4):
        case 0:
            raise BaseExceptionGroup(text_of(chance), [error, ValueError(text_of(chance))])
        case 1:
            raise ValueError(text_of(chance)) from error
        case _:
            raise error
