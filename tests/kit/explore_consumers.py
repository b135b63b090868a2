"""The world of one consumer for the explorer: that of ``kit.interleave_consumers``, with appends and parked events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from howdah.errors import LeaseLost
from howdah.postgres.database import Database
from kit.interleave import Form
from kit.interleave_consumers import (
    EPOCH,
    FILL,
    NAME,
    OWNER,
    PART,
    STATEMENTS,
    TO,
    PreparedConsumer,
    asking,
    prepare,
    run,
)
from kit.interleave_consumers import FORMS as FIRST_FORMS

PARKED = 3
SLOWED = ("howdah.event", "howdah.consumer_partition", "howdah.checkpoint", "howdah.parked", "public.applied")
MORE = f"""
delete from howdah.event where position > {TO};
select setval('howdah.event_position_seq', {TO});
delete from applied where position = {PARKED};
insert into howdah.parked (consumer, position, part, error, message, traceback, failures, wanted_at)
    values ('{NAME}', {PARKED}, {PART}, 'E', 'm', 't', 1, now());
"""
SUMMARY = {
    # positions have holes: what counts is how many events are behind
    "consumer_partition": f"""
        select s.node, s.epoch >> 24, (select count(*) from howdah.event e where e.position <= k.position), k.failures,
            k.halted, k.error_position, c.paused
        from howdah.consumer_partition s
        join howdah.checkpoint k using (consumer, part)
        join howdah.consumer c on c.name = s.consumer
        where s.consumer = '{NAME}'""",
    "parked": "select position, wanted_at is not null, failures from howdah.parked order by 1",
    "applied": """
        select e.stream_id, e.version, count(*) from applied a left join howdah.event e using (position)
        group by 1, 2 order by 1, 2""",
    "events": "select stream_id, version, type from howdah.event order by 1, 2",
}
STREAMS = """
select 'version ' || version || ' of stream ' || stream_id || ' comes before an older one'
from (
    select *, max(position) over (partition by stream_type, stream_id order by version) as highest from howdah.event
) e
where position < highest
union all
select 'stream ' || stream_id || ' has ' || count(*) || ' events, the last of version ' || max(version)
from howdah.event group by stream_id having count(*) <> max(version)
"""
LEFT_OUT = f"""
select 'event ' || e.position || ' was never handled' from howdah.event e
where e.position > {TO} and not exists (select from applied a where a.position = e.position)
"""
WAKE = f"""
update howdah.consumer set paused = false; update howdah.checkpoint set halted = false;
update howdah.consumer_partition set node = {OWNER}, epoch = epoch + 1;
"""


class Undone(Exception):
    """Rolls back what was only a test."""


async def follow(_stand: PreparedConsumer, conn: Any) -> str:
    """A batch as the owner makes it: look at the partition, at the frontier, read, handle, move the checkpoint."""
    partition = await conn.fetchrow(
        "select s.node, s.epoch, k.position, c.paused or k.halted as idle from howdah.consumer_partition s"
        " join howdah.checkpoint k using (consumer, part) join howdah.consumer c on c.name = s.consumer"
        f" where s.consumer = '{NAME}'"
    )
    if partition is None or partition["node"] is None or partition["idle"]:
        return "idle"
    safe, here = (await conn.fetchrow(STATEMENTS["frontier"], 0))["safe"], await run(conn)
    if safe <= partition["position"]:
        return "nothing"
    try:
        async with conn.transaction():
            events = await conn.fetch(STATEMENTS["follow"], partition["position"], safe, 1000, here)
            for event in events:
                await conn.execute("insert into applied values ($1)", event["position"])
            given = (
                NAME,
                PART,
                partition["node"],
                partition["epoch"],
                partition["position"],
                safe,
                len(events),
                1.0,
                here,
            )
            if not await conn.fetchval(STATEMENTS["move_checkpoint"], *given):
                raise LeaseLost
    except LeaseLost:
        return "lost"
    return "settled"


async def rebuild(_stand: PreparedConsumer, conn: Any) -> bool:
    """Reset to the beginning, and forget what was made of the events."""
    async with conn.transaction():
        await conn.fetch(STATEMENTS["reset"], NAME, None, 0)
        await conn.fetch(STATEMENTS["drop_parked"], NAME, None)
        await conn.execute("delete from applied")
    return True


async def unpark(_stand: PreparedConsumer, conn: Any) -> bool:
    """The owner handles a parked event."""
    try:
        async with conn.transaction():
            await conn.execute("insert into applied values ($1)", PARKED)
            given = (NAME, PART, OWNER, EPOCH, PARKED, await run(conn))
            if await conn.fetchval(STATEMENTS["unpark"], *given) is None:
                raise LeaseLost
    except LeaseLost:
        return False
    return True


async def repark(_stand: PreparedConsumer, conn: Any) -> bool:
    given = (NAME, PART, OWNER, EPOCH, PARKED, await run(conn), "E", "again", "t")
    return await conn.fetchval(STATEMENTS["repark"], *given) is not None


async def forget(_stand: PreparedConsumer, conn: Any) -> bool:
    return await conn.fetchval(STATEMENTS["forget"], NAME, 30.0) is not None


def appending(stream: str, expect: int | None, count: int) -> Any:
    async def do(_stand: PreparedConsumer, conn: Any) -> int:
        events = "[" + ", ".join(['{"type": "Noted", "data": {}}'] * count) + "]"
        row = await conn.fetchrow(STATEMENTS["append"], stream, events, expect, None, None, None)
        return int(row["version"])

    return do


def form(act: str, name: str, do: Any, *, skips: bool = False) -> Form:
    return Form(act=act, name=name, do=do, skips=skips)


FORMS = [
    *(each for each in FIRST_FORMS if str(each) != "reset to the beginning"),
    form("reset", "and rebuild", rebuild),
    form("follow", "", follow, skips=True),
    form("append", "one", appending("Order-1", None, 1)),
    form("append", "as expected", appending("Order-1", TO, 2)),
    form("append", "to another stream", appending("Order-2", None, 2)),
    form("retry parked", "", asking("retry_parked", None)),
    form("drop parked", "", asking("drop_parked", [PARKED])),
    form("unpark", "", unpark),
    form("repark", "", repark),
    form("forget", "", forget),
]
BATCHES, FAILURES = {"advance", "follow"}, {"park", "fault"}


@dataclass
class Log:
    """See :class:`PreparedConsumer`; event 3 is also parked, and to be retried. The same content before every round."""

    name = "consumers"
    independent = False
    forms: Sequence[Form] = field(default_factory=lambda: FORMS)

    @property
    def statements(self) -> dict[str, str]:
        """Those that the operations send."""
        return STATEMENTS

    async def prepare(self, conn: Any, database: Database) -> None:
        """Make the log, and where effects are noted."""
        await prepare(conn)
        await conn.execute("grant all on applied to public")

    async def lay(self, conn: Any, forms: Sequence[Form]) -> PreparedConsumer:
        async with conn.transaction():
            await conn.execute(FILL)
            await conn.execute("set local session_replication_role = replica")  # events are never deleted otherwise
            await conn.execute(MORE)
        return PreparedConsumer()

    def excludes(self, forms: Sequence[Form]) -> bool:
        """An owner does one thing after the other: of one batch it knows whether it failed."""
        acts = {form.act for form in forms}
        return bool(acts & FAILURES and acts & BATCHES) or acts >= FAILURES

    async def summary(self, conn: Any) -> dict[str, list[Any]]:
        return {name: [tuple(row) for row in await conn.fetch(query)] for name, query in SUMMARY.items()}

    async def wrongs(self, conn: Any) -> list[str]:
        """Streams are whole; nothing was handled twice; a consumer that goes on handles every new event."""
        wrong = [row[0] for row in await conn.fetch(STREAMS)]
        if (await self.summary(conn))["consumer_partition"]:
            end = await conn.fetchval("select last_value from howdah.event_position_seq")
            wrong += await PreparedConsumer(end=end, resumed=True).wrongs(conn)
            try:
                async with conn.transaction():
                    await conn.execute(WAKE)
                    await follow(PreparedConsumer(), conn)
                    wrong += [row[0] for row in await conn.fetch(LEFT_OUT)]
                    twice = await conn.fetch("select position from applied group by 1 having count(*) > 1")
                    wrong += [f"event {row['position']} is handled twice" for row in twice]
                    raise Undone
            except Undone:
                pass
        return wrong

    def wrong_answer(self, form: Form, result: Any) -> str | None:
        return None
