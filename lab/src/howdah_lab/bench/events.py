"""Events of the benchmark, and the plain table the log is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from howdah.postgres import sql
from howdah_lab.bench.app import app, arguments
from howdah_lab.bench.bench_schema import CheckFailed
from howdah_lab.bench.scenario import Plan

PER_STREAM = 4
"""Appends to one stream: one in four makes a new one."""
STATEMENT_TIMEOUT = 60.0
"""Seconds."""


class Counted(NamedTuple):
    """Numbers of events by table."""

    events: int
    torn: int
    """Streams whose versions do not rise one by one."""
    plain: int


@app.event
class Placed(msgspec.Struct):
    """Data as an application would have it, some 90 bytes of JSON."""

    user_id: int
    email: str
    template: str
    number: int
    tags: list[str]


@app.event
class Probe(msgspec.Struct):
    """An event that says when its append call began; the monotonic clock is one for all processes of a machine."""

    began: float


def placed(number: int) -> Placed:
    """The event with this number."""
    return Placed(*arguments(number))


def streams(count: int) -> Iterator[tuple[str, list[Placed]]]:
    """So many events in streams of four, for a bulk append."""
    for first in range(0, count, PER_STREAM):
        yield f"Order-{first}", [placed(number) for number in range(first, min(count, first + PER_STREAM))]


def statements(plan: Plan) -> dict[str, str]:
    """The statements of the benchmark."""
    return sql.load("howdah_lab.bench", schema=plan.schema.database.schema)


async def make(plan: Plan) -> None:
    """Create the plain table to compare with, and the read model."""
    await plan.schema.conn.execute(statements(plan)["make_events"])


async def counted(plan: Plan) -> Counted:
    """Return the current numbers."""
    return Counted(**await plan.schema.conn.fetchrow(statements(plan)["check_events"], timeout=STATEMENT_TIMEOUT))


async def check(plan: Plan, *, events: int, plain: int = 0) -> None:
    """Raise :class:`CheckFailed` unless so many events are there, with versions that rise one by one."""
    there, wanted = (await counted(plan))._asdict(), {"events": events, "torn": 0, "plain": plain}
    wrong = [f"{name} {there[name]:,} instead of {value:,}" for name, value in wanted.items() if there[name] != value]
    if wrong:
        raise CheckFailed(f"the log does not add up: {', '.join(wrong)}")
