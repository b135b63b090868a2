"""Readers in a process of their own, polling flat out: ``python -m kit.readers DSN NAME``.

Two read as they should, the others as one would at first. Each goes on until its standard input is closed and nothing
is left to read, then prints what it saw: a line of figures, and a line for every event.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from howdah import Howdah

PAGE = 5000
CALM = 20
"""Empty reads in a row, after the appenders are done, until a reader believes that it has seen everything."""

EVENTS = f"""
select position, stream_type || '-' || stream_id, version from howdah.event
where position > $1 and position <= $2 order by position limit {PAGE}
"""
ALL_IN_ONE = f"""
with f as materialized (select safe from howdah.frontier())
select e.position, e.stream_type || '-' || e.stream_id, e.version, f.safe
from f left join howdah.event e on e.position > $1 and e.position <= f.safe
order by e.position limit {PAGE}
"""
HEAD = "select coalesce(pg_sequence_last_value('howdah.event_position_seq'), 0)"
LOWEST = """
select min(objid::bigint) from pg_locks
where locktype = 'advisory' and objsubid = 2 and mode = 'ShareLock' and classid = 'howdah.event'::regclass
"""

Row = tuple[int, str, int]
Step = Callable[[Any, int], Awaitable[tuple[list[Row], int]]]
"""Read what comes after a position; returns it, and the position to go on from."""


def _next(rows: list[Row], upto: int, after: int) -> int:
    return rows[-1][0] if len(rows) == PAGE else max(after, upto)


async def frontier(conn: Any, after: int) -> tuple[list[Row], int]:
    """The frontier first, then the events up to it."""
    safe = await conn.fetchval("select safe from howdah.frontier()")
    rows = [tuple(row) for row in await conn.fetch(EVENTS, after, safe)]
    return rows, _next(rows, safe, after)


async def naive(conn: Any, after: int) -> tuple[list[Row], int]:
    """Whatever is there after the last one seen."""
    rows = [tuple(row) for row in await conn.fetch(EVENTS, after, 2**62)]
    return rows, rows[-1][0] if rows else after


async def one_statement(conn: Any, after: int) -> tuple[list[Row], int]:
    """Frontier and events in one statement, which sees the events as of before the frontier."""
    found = await conn.fetch(ALL_IN_ONE, after)
    rows = [(position, stream, version) for position, stream, version, _ in found if position is not None]
    return rows, _next(rows, found[0]["safe"], after)


async def one_snapshot(conn: Any, after: int) -> tuple[list[Row], int]:
    """The right order, in a transaction that sees the events as of its beginning."""
    async with conn.transaction(isolation="repeatable_read"):
        head, lowest = await conn.fetchval(HEAD), await conn.fetchval(LOWEST)
        safe = head if lowest is None else min(head, lowest)
        rows = [tuple(row) for row in await conn.fetch(EVENTS, after, safe)]
    return rows, _next(rows, safe, after)


def through_app(app: Howdah) -> Step:
    """The way the package does it."""

    async def log(_conn: Any, after: int) -> tuple[list[Row], int]:
        events = await app.log.read(after=after, limit=PAGE)
        rows = [(event.position, event.stream, event.version) for event in events]
        return rows, rows[-1][0] if rows else after

    return log


READERS: dict[str, Step] = {
    "frontier": frontier,
    "naive": naive,
    "one statement": one_statement,
    "one snapshot": one_snapshot,
}


async def main(dsn: str, name: str) -> None:
    step = READERS[name] if name in READERS else through_app(Howdah(dsn))
    conn = await asyncpg.connect(dsn)
    closed = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    seen: list[Row] = []
    after, empty, polls, stall, last = 0, 0, 0, 0.0, None
    while empty < CALM:
        over = closed.done()
        rows, after = await step(conn, after)
        polls += 1
        now = time.monotonic()
        if rows:
            stall, last, empty = max(stall, now - (last or now)), now, 0
            seen += rows
        elif over:
            empty += 1
    await conn.close()
    print(json.dumps({"stall": stall, "polls": polls}))
    sys.stdout.writelines(f"{position} {stream} {version}\n" for position, stream, version in seen)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
