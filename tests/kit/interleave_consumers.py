"""A consumer that stands in the middle of the log, and everything that can be done to it at the same moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from howdah.errors import LeaseLost
from howdah.postgres import sql
from kit.interleave import Form

STATEMENTS = sql.load("howdah.events", schema="howdah")
NAME, PART, OWNER, SUCCESSOR, LEADER, EPOCH = "view", 0, 1, 2, 3, 5
AT, FAILED_AT, TO = 5, 6, 10
FILL = f"""
delete from howdah.consumer; delete from applied; update howdah.leader set node = {LEADER}, since = now();
insert into howdah.consumer (name, partitions) values ('{NAME}', 1);
insert into howdah.consumer_partition (consumer, part, node, epoch) values ('{NAME}', {PART}, {OWNER}, {EPOCH});
insert into howdah.checkpoint (consumer, part, position, failures, error_position, error, message, traceback)
    values ('{NAME}', {PART}, {AT}, 1, {FAILED_AT}, 'E', 'm', 't');
insert into applied select i from generate_series(1, {AT}) i;
"""


@dataclass(frozen=True)
class PreparedConsumer:
    """One partition, of node 1: its checkpoint is at 5, the log at 10, and it failed once on 6. Effects are noted."""

    end: int = TO
    """The last position that was given out."""
    resumed: bool = False
    """Whether it may be resumed after it halted: that sets the failures to 0 and keeps the event it failed on."""

    async def portrait(self, conn: Any) -> Any:
        partition = await conn.fetchrow(
            "select s.node, s.epoch >> 24, k.position, k.failures, k.halted, k.error_position, c.paused"
            " from howdah.consumer_partition s join howdah.checkpoint k using (consumer, part)"
            " join howdah.consumer c on c.name = s.consumer"
        )
        parked = await conn.fetch("select position, wanted_at is not null from howdah.parked order by 1")
        applied = await conn.fetch("select position, count(*) from applied group by 1 order by 1")
        return tuple(partition), [tuple(row) for row in parked], [tuple(row) for row in applied]

    async def lay(self, conn: Any) -> PreparedConsumer:
        """Begin anew."""
        await conn.execute(FILL)
        return self

    async def wrongs(self, conn: Any) -> list[str]:
        """What can never be: beyond the log, halted for what it has passed, events applied twice."""
        (_, _, position, failures, halted, at, _), _, applied = await self.portrait(conn)
        wrong = [f"event {each} was applied {times} times" for each, times in applied if times > 1]
        if position > self.end:
            wrong.append(f"the checkpoint is at {position}, beyond the log")
        if halted and (at is None or at <= position):
            wrong.append(f"it halts at {position} for event {at}")
        if (failures == 0) != (at is None) and not halted and not (self.resumed and failures == 0):
            wrong.append(f"{failures} failures on event {at}")
        return wrong


async def prepare(conn: Any) -> PreparedConsumer:
    """Make the log, and where effects are noted."""
    await conn.execute("select howdah.begin_run()")
    await conn.execute("create table applied (position bigint not null)")
    await conn.execute(f"insert into howdah.node (name) select 'node ' || i from generate_series(1, {SUCCESSOR}) i")
    for _ in range(TO):
        await conn.execute("select howdah.append('Order-1', $1)", b'[{"type": "Noted", "data": {}}]')
    return PreparedConsumer()


async def run(conn: Any) -> int:
    """The run of the server."""
    return int(await conn.fetchval("select howdah.server_run()"))


async def advance(_stand: PreparedConsumer, conn: Any) -> str:
    """A batch: its effects and its checkpoint, or neither."""
    try:
        async with conn.transaction():
            await conn.execute(f"insert into applied select i from generate_series({AT + 1}, {TO}) i")
            given = (NAME, PART, OWNER, EPOCH, AT, TO, TO - AT, 1.0, await run(conn))
            if not await conn.fetchval(STATEMENTS["move_checkpoint"], *given):
                raise LeaseLost
    except LeaseLost:
        return "lost"
    return "settled"


async def park(_stand: PreparedConsumer, conn: Any) -> str:
    """The event it fails on is set aside, and the checkpoint moves past it, or neither."""
    try:
        async with conn.transaction():
            await conn.execute(STATEMENTS["park"], NAME, PART, FAILED_AT, "E", "m", "t", 2)
            given = (NAME, PART, OWNER, EPOCH, AT, FAILED_AT, 0, 1.0, await run(conn))
            if not await conn.fetchval(STATEMENTS["move_checkpoint"], *given):
                raise LeaseLost
    except LeaseLost:
        return "lost"
    return "parked"


async def fault(_stand: PreparedConsumer, conn: Any) -> bool:
    given = (NAME, PART, OWNER, EPOCH, 2, True, FAILED_AT, "E", "m", "t", await run(conn))
    return bool(await conn.fetchval(STATEMENTS["record_failure"], *given))


def assigning(node: int | None) -> Any:
    async def do(_stand: PreparedConsumer, conn: Any) -> int:
        leader = await conn.fetchrow("select node, since from howdah.leader")
        return int((await conn.fetchrow(STATEMENTS["assign"], [NAME], [PART], [node], *leader))["moved"])

    return do


async def resign(_stand: PreparedConsumer, conn: Any) -> int:
    return int((await conn.fetchrow(STATEMENTS["release_partitions"], OWNER))["freed"])


def resetting(position: int) -> Any:
    async def do(_stand: PreparedConsumer, conn: Any) -> list[int]:
        return [row["part"] for row in await conn.fetch(STATEMENTS["reset"], NAME, None, position)]

    return do


def asking(verb: str, *values: Any) -> Any:
    async def do(_stand: PreparedConsumer, conn: Any) -> list[Any]:
        return [row[0] for row in await conn.fetch(STATEMENTS[verb], NAME, *values)]

    return do


CHECKPOINT, PARTITION, CONSUMER = (
    {thing: "no key update"} for thing in ("checkpoint", "consumer_partition", "consumer")
)
FORMS = [
    Form(act="advance", name="", do=advance, locks=CHECKPOINT),
    Form(act="park", name="", do=park, locks=CHECKPOINT | {"parked": "update"}),
    Form(act="fault", name="", do=fault, locks=CHECKPOINT),
    Form(act="takeover", name="by another", do=assigning(SUCCESSOR), locks=PARTITION),
    Form(act="takeover", name="by nobody", do=assigning(None), locks=PARTITION),
    Form(act="takeover", name="since it resigns", do=resign, locks=PARTITION | {"node": "no key update"}),
    Form(act="reset", name="to the beginning", do=resetting(0), locks=CHECKPOINT | PARTITION),
    Form(act="reset", name="to the end", do=resetting(TO), locks=CHECKPOINT | PARTITION),
    Form(act="skip", name="", do=asking("skip", None, None), locks=CHECKPOINT | PARTITION),
    Form(act="pause", name="", do=asking("pause", "somebody"), locks=CONSUMER),
    Form(act="resume", name="", do=asking("resume"), locks=CONSUMER),
]
ACTS = list(dict.fromkeys(form.act for form in FORMS))
