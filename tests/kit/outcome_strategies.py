"""Ways in which a handler can end, drawn by hypothesis: an act and the value it is done with, both as text.

Text travels as the arguments of a job or in the columns of a row; :func:`end` makes the value from it where the handler
runs, also in another process. :func:`fate` says independently of the package what must become of the job.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from howdah import Cancel, Poison, RateLimited, Retry, Snooze
from howdah.errors import CodedError, LeaseLost
from kit.unstorable_results import RAW, UNSTORABLE, UnreadableError

LONG = 3600.0
"""Seconds: a drawn delay is zero or at least this, so that no test depends on when a job is tried again."""


class Fate(NamedTuple):
    """What becomes of a job."""

    state: str
    """``done``, ``cancelled``, ``failed``, or ``waits`` for another attempt."""
    failures: int
    """Attempts that failed."""


DONE, CANCELLED, SNOOZED = Fate("done", 0), Fate("cancelled", 0), Fate("waits", 0)
RETRIED, POISONED, EXHAUSTED = Fate("waits", 1), Fate("failed", 1), Fate("failed", 2)


class _Number(float):
    """A number whose own code lies when it is compared or converted."""

    def __lt__(self, other: object) -> bool:
        return True

    __gt__ = __le__ = __ge__ = __lt__

    def __float__(self) -> float:
        return float("nan")


class _Text(str):
    """A text whose own code puts a NUL character into it."""

    __slots__ = ()

    def __str__(self) -> str:
        return self

    def replace(self, *_: Any) -> str:  # type: ignore[override]
        return "\0"


VALUES: dict[str, Callable[[], Any]] = {
    **{name: make for name, make in UNSTORABLE.items() if name != "100 MB"},  # it would block the event loop
    **{f"raw: {name}": make for name, make in RAW.items()},
    "1 MB": lambda: "x" * 1_000_000,
    "1 MB of secrets": lambda: "token=abc " * 100_000,
    "infinity": lambda: float("inf"),
    "minus infinity": lambda: float("-inf"),
    "zero": lambda: 0,
    "zero as a decimal": lambda: Decimal(0),
    "signalling NaN": lambda: Decimal("sNaN"),
    "a large decimal": lambda: Decimal("1e999999"),
    "many digits below zero": lambda: -(10**5000),
    "a number that lies": lambda: _Number(LONG),
    "a text that changes": lambda: _Text("soon"),
    "bytes": lambda: b"\xff\0",
    "a timedelta": lambda: timedelta(days=1),
    "an exception": lambda: ValueError("a value"),
}
"""Values that have no JSON, by name."""


def make(value: str) -> Any:
    """The value that a text stands for: a name of ``VALUES``, or ``=`` and JSON."""
    return json.loads(value[1:]) if value.startswith("=") else VALUES[value]()


def _raise(error: BaseException) -> Any:
    raise error


def _with(error: Exception, **attributes: Any) -> Exception:
    error.__dict__.update(attributes)
    return error


def _named(value: Any) -> Exception:
    kind = type("Strange", (Exception,), {})
    kind.__qualname__ = value if isinstance(value, str) else "N\0" * 500_000
    return kind("on purpose")


def _circle(error: BaseException) -> BaseException:
    error.__cause__ = error.__context__ = error
    return error


RETURNS: dict[str, Callable[[Any], Any]] = {
    "return": lambda value: value,
    "return inside": lambda value: {"a": [value]},
}
DELAYS: dict[str, Callable[[Any], Any]] = {
    "retry": lambda value: _raise(Retry("later", after=value)),
    "retry_after": lambda value: _raise(_with(RuntimeError("later"), retry_after=value)),
    "rate limited": lambda value: _raise(RateLimited("429", retry_after=value)),
    "code": lambda value: _raise(CodedError("x", code=value, retry_after=value, hold=value)),
}
HOLDS: dict[str, Callable[[Any], Any]] = {
    "hold": lambda value: _raise(RateLimited("429", hold=value)),
    "hold until the retry": lambda value: _raise(RateLimited("429", hold=True, retry_after=value)),
}
"""JobActions that may put the kind of their job on hold: other jobs of that kind wait."""
RAISES: dict[str, Callable[[Any], Any]] = {
    "raise": lambda value: _raise(ValueError(value)),
    "raise with odd attributes": lambda value: _raise(_with(ValueError("x"), code=value, hold=value)),
    "raise without a message": lambda _: _raise(UnreadableError()),
    "raise with a name": lambda value: _raise(_named(value)),
    "raise from itself": lambda value: _raise(_circle(ValueError(value))),
    "a lost lease": lambda value: _raise(LeaseLost(value)),
    "SystemExit": lambda value: _raise(SystemExit(value)),
    "KeyboardInterrupt": lambda value: _raise(KeyboardInterrupt(value)),
    "GeneratorExit": lambda value: _raise(GeneratorExit(value)),
    "CancelledError": lambda value: _raise(asyncio.CancelledError(value)),
    "StopIteration": lambda value: _raise(StopIteration(value)),
    "StopAsyncIteration": lambda value: _raise(StopAsyncIteration(value)),
    "a group": lambda value: _raise(BaseExceptionGroup("g", [SystemExit(value), ValueError(value)])),
}
DEATHS: dict[str, Callable[[Any], Any]] = {
    "exit": lambda _: os._exit(3),
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
}
"""Only for a process of its own."""
ACTS: dict[str, Callable[[Any], Any]] = {
    **RETURNS,
    **DELAYS,
    **HOLDS,
    **RAISES,
    **DEATHS,
    "snooze": Snooze,
    "cancel": Cancel,
    "poison": lambda value: _raise(Poison(value)),
    "bad login": lambda value: _raise(CodedError(value, code="AUTH_FAILED")),
}


@dataclass(frozen=True, slots=True)
class Ending:
    """One way to end."""

    act: str
    value: str


PLAIN = Ending("return", "=1")
KNOWN = [
    Ending("SystemExit", "a proxy"),
    Ending("code", "a proxy"),
    Ending("cancel", "deep"),
    Ending("cancel", "too many digits"),
    Ending("return", "raw: two values"),
    Ending("raise with a name", "a text that changes"),
    Ending("snooze", "many digits below zero"),
]
"""Endings that once got another state than they deserve."""


def end(act: str, value: str) -> Any:
    """End a handler so: returns or raises."""
    return ACTS[act](make(value))


def _delay(value: Any) -> float | None:
    """The seconds that a value means; nothing if it is no number of seconds."""
    kind = type(value)  # not isinstance: it asks the value, whose code may raise
    if kind is bool or not issubclass(kind, int | float | Decimal):
        return None
    try:
        return min(value, LONG) if 0 <= value < float("inf") else None
    except ArithmeticError:
        return None


def fate(ending: Ending) -> Fate:
    """What must become of a job that ends so, with two attempts and a backoff of an hour."""
    if ending.act in RETURNS:
        return DONE
    if ending.act == "cancel":
        return CANCELLED
    if ending.act in ("poison", "bad login"):
        return POISONED
    if ending.act == "snooze":
        return RETRIED if _delay(make(ending.value)) is None else SNOOZED
    if ending.act in DELAYS or ending.act == "hold until the retry":
        return EXHAUSTED if _delay(make(ending.value)) == 0 else RETRIED
    return RETRIED


_numbers = st.integers(int(LONG)) | st.integers(max_value=-1) | st.floats(LONG, 1e308) | st.floats(-1e308, -1.0)
_texts = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
_json = (_numbers | _texts | st.none() | st.booleans()).map(lambda value: f"={json.dumps(value)}")
_values = st.sampled_from(sorted(VALUES)) | _json


def _is_endless(ending: Ending) -> bool:
    return ending.act == "snooze" and _delay(make(ending.value)) == 0


def endings(acts: Any) -> st.SearchStrategy[Ending]:
    """Endings by these acts, with any value; not a job that snoozes for no time, as it never ends."""
    return st.builds(Ending, st.sampled_from(sorted(acts)), _values).filter(lambda ending: not _is_endless(ending))


async def explore(
    drawn: st.SearchStrategy[Any], check: Callable[[Any], Awaitable[None]], *, examples: int, seconds: float
) -> None:
    """Draw examples and check each on the event loop that is running; draw no more after so many seconds.

    Hypothesis runs in a thread, so that it waits for each check, and nothing of it runs between the handlers.
    """
    loop = asyncio.get_running_loop()
    number = int(os.environ.get("HOWDAH_TEST_SEED") or random.randrange(2**32))
    print(f"HOWDAH_TEST_SEED={number} draws the same endings again")
    last = loop.time() + seconds
    failed: list[BaseException] = []

    @seed(number)
    @settings(
        max_examples=examples,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn)
    def draw(example: Any) -> None:
        if failed:
            raise failed[0]  # not checked again: the jobs of the first time may still be there
        if loop.time() < last:
            try:
                asyncio.run_coroutine_threadsafe(check(example), loop).result()
            except BaseException as error:
                failed.append(error)
                raise

    await asyncio.to_thread(draw)
