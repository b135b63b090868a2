"""Outcomes as no handler should give them: each is recorded, and none holds up the outcomes beside it."""

from __future__ import annotations

import time
from datetime import timedelta
from decimal import Decimal

import pytest

from howdah import Backoff, Cancel, Poison, RateLimited, Retry, Snooze, Transaction
from howdah.errors import CodedError
from howdah.retry import LONGEST_DELAY
from kit.node import EVENTUALLY_TIMEOUT, ended, eventually, job, node

pytestmark = pytest.mark.anyio
SETTLED = """
select not exists (
    select from howdah.jobs j
    where state in ('queued', 'running') and not exists (select from howdah.later l where l.id = j.id))
"""
TEN_YEARS = 10 * 365 * 86400


def with_attribute(**attributes: object) -> Exception:
    error = RuntimeError("on purpose")
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def named(name: str) -> Exception:
    kind = type("Strange", (Exception,), {})
    kind.__qualname__ = name
    return kind("on purpose")


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Trap(Exception):
    @property
    def retry_after(self) -> float:
        raise RuntimeError("do not ask")

    @property
    def code(self) -> str:
        raise RuntimeError("nor this")


class Shape(type):
    def __getattribute__(cls, name: str) -> object:
        if name == "__qualname__":
            raise RuntimeError("no name")
        return super().__getattribute__(name)


class Nameless(Exception, metaclass=Shape):
    pass


RAISED = {
    "after beyond every date": lambda: Retry("x", after=1e20),
    "after 1e308": lambda: Retry("x", after=1e308),
    "after infinity": lambda: Retry("x", after=float("inf")),
    "after NaN": lambda: Retry("x", after=float("nan")),
    "after negative": lambda: Retry("x", after=-5),
    "after a huge int": lambda: Retry("x", after=10**400),
    "after a text": lambda: Retry("x", after="soon"),
    "after a decimal": lambda: Retry("x", after=Decimal("1e50")),
    "after a timedelta": lambda: Retry("x", after=timedelta(days=1)),
    "retry_after 1e300": lambda: with_attribute(retry_after=1e300),
    "retry_after a list": lambda: with_attribute(retry_after=[1]),
    "attributes that raise": Trap,
    "hold a text": lambda: RateLimited("429", hold="soon"),
    "hold 1e300": lambda: RateLimited("429", hold=1e300, retry_after=1e300),
    "hold NaN": lambda: RateLimited("429", hold=float("nan")),
    "hold negative": lambda: RateLimited("429", hold=-1),
    "hold a list": lambda: RateLimited("429", hold=[]),
    "a code that is none": lambda: CodedError("x", code=["RATE_LIMITED"]),
    "NUL in the name": lambda: named("Na\0me"),
    "lone surrogate in the name": lambda: named("Na\ud800me"),
    "a name without end": lambda: named("N" * 1_000_000),
    "no name": Nameless,
    "NUL in the message": lambda: ValueError("a\0b"),
    "lone surrogate in the message": lambda: ValueError("a\udcffb"),
    "10 MB of message": lambda: ValueError("token=abc " * 1_000_000),
    "no message": Mute,
    "poison with NUL": lambda: Poison("\0"),
}
RETURNED = {
    "snooze for ever": lambda: Snooze(10**30),
    "snooze 1e300": lambda: Snooze(1e300),
    "snooze NaN": lambda: Snooze(float("nan")),
    "snooze negative": lambda: Snooze(-1),
    "snooze a text": lambda: Snooze("soon"),
    "cancel with NUL": lambda: Cancel("a\0b"),
    "cancel with a lone surrogate": lambda: Cancel("a\ud800b"),
    "cancel with a number": lambda: Cancel(17),
    "cancel without a reason": lambda: Cancel(None),
    "cancel with 10 MB": lambda: Cancel("password=x " * 1_000_000),
    "a result with NUL in its type's name": lambda: type("Na\0me", (), {})(),
    "a number beyond 64 bits": lambda: 2**70,
}


async def test_every_strange_outcome_is_recorded_and_none_holds_up_its_neighbours(app, conn):

    @app.task
    async def raises(what: str) -> None:
        raise RAISED[what]()

    @app.task
    async def returns(what: str) -> object:
        return RETURNED[what]()

    @app.task(transactional=True)
    async def returns_in_transaction(tx: Transaction, what: str) -> object:
        return RETURNED[what]()

    @app.task(retry=Backoff(first=1e300, cap=1e300, factor=1e300))
    async def patient() -> None:
        raise ValueError("wait for ever")

    @app.task(queue="plain")
    async def plain(n: int) -> int:
        return n

    strange = [await raises.enqueue(what) for what in RAISED]
    strange += [await task.enqueue(what) for what in RETURNED for task in (returns, returns_in_transaction)]
    strange += [await patient.enqueue()]
    neighbours = [await plain.enqueue(n) for n in range(20)]

    async def settled() -> bool:
        return await conn.fetchval(SETTLED)

    async def left() -> bool:
        return not await conn.fetchval("select count(*) from howdah.lease")

    async with node(app, queues={"default": None, "plain": None}, lease=60.0):
        for each in neighbours:
            assert (await ended(conn, each.id))["state"] == "done"
        assert await eventually(settled)
        assert await eventually(left)
        began = time.monotonic()
    assert time.monotonic() - began < EVENTUALLY_TIMEOUT / 2  # nothing is left that could not be recorded

    far = await conn.fetch("select id, extract(epoch from due_at - now())::float8 as wait from howdah.later")
    assert max(row["wait"] for row in far) <= TEN_YEARS * 1.01
    waits = {row["id"]: row["wait"] for row in far}
    by_name = dict(zip(RAISED, strange, strict=False))
    assert waits[by_name["after beyond every date"].id] == pytest.approx(LONGEST_DELAY, rel=0.01)
    assert waits[by_name["after a text"].id] < 60  # what is no number is not asked for
    assert (await job(conn, by_name["poison with NUL"].id))["state"] == "failed"
    held = await conn.fetch("select kind, extract(epoch from until - now())::float8 as wait from howdah.hold")
    assert {row["kind"] for row in held} == {"raises"}
    assert all(row["wait"] <= 3600 for row in held)
