"""Every operation on jobs, for the explorer: those of ``kit.interleave_jobs`` and all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from howdah.job import NewJob
from howdah.jobs.bulk import BulkEnqueue
from howdah.jobs.enqueue import EnqueueClient
from howdah.jobs.schedule import Schedule
from howdah.maintenance.scheduler import Scheduler
from howdah.outcome import Ack, Outcome
from howdah.postgres.database import Database
from kit.interleave import Form
from kit.interleave_jobs import EVERY_KIND, LEASE, NOBODY, STATEMENTS, TOMORROW, SingleConnection, ack, acking, asking
from kit.interleave_jobs import FORMS as FIRST_FORMS

OK, FAILED, RETRY = Outcome.OK, Outcome.FAILED, Outcome.RETRY
SNOOZED, RELEASED = Outcome.SNOOZED, Outcome.RELEASED
HOUR = 3600.0
QUEUES = ["default", "other"]
SCHEDULE = Schedule(name="yearly", job=NewJob(kind="tick", queue="ticks"), cron="0 0 1 1 *")
SEEN = {0: "failed", 1: "done", 2: "failed", 6: "queued", 9: "queued", 12: "queued", 14: "running"}
"""What is deleted, as it was seen; 6 was seen before it was claimed."""


# -------------------------------------------------------------------- enqueue


def enqueueing(statement: str) -> Any:
    async def do(_ground: Any, conn: Any) -> list[int]:
        if statement == "enqueue_now":
            return [await conn.fetchval(STATEMENTS[statement], "note", "{}", "default", 0, 3, None, None, None)]
        return [await _enqueue(conn, None)]

    return do


def enqueueing_keys(*keys: str) -> Any:
    """One by one, as the client does in a transaction of its caller."""

    async def do(_ground: Any, conn: Any) -> list[int]:
        return [await _enqueue(conn, key) for key in keys]

    return do


def enqueueing_many(*keys: str | None) -> Any:
    async def do(_ground: Any, conn: Any) -> list[int]:
        jobs = [NewJob(kind="note", max_attempts=3, key=key) for key in keys]
        return [made.id for made in await BulkEnqueue("howdah", STATEMENTS).enqueue(conn, jobs)]

    return do


async def _enqueue(conn: Any, key: str | None) -> int:
    given = ("note", "{}", "default", 0, None, None, 3, None, key, None, None)
    return int(await conn.fetchval(STATEMENTS["enqueue"], *given))


async def fire(_ground: Any, conn: Any) -> bool:
    """One round of the scheduler."""
    database, none = Database("postgresql://nowhere"), None
    client = EnqueueClient(database, lambda: none, none)  # type: ignore[arg-type]
    scheduler = Scheduler(database, {SCHEDULE.name: SCHEDULE}, client)
    scheduler._session = SingleConnection(conn)  # type: ignore[assignment]
    await scheduler.tick()
    return True


# -------------------------------------------------------------------- what workers do


def acking_other(outcomes: Mapping[int, Outcome], *, last: bool = False) -> Any:
    """Acks of the second node, whose lease is alive."""

    async def do(prepared: Any, conn: Any) -> dict[int, str]:
        acks = [
            Ack(prepared.others[number], outcome, 1)
            if outcome is OK
            else Ack(prepared.others[number], outcome, 1, error="E", message="on purpose", delay=1000.0)
            for number, outcome in outcomes.items()
        ]
        return await ack(conn, prepared.second, acks, [prepared.others[14].token] if last else [])

    return do


def handling(number: int) -> Any:
    """A handler's transaction: its effect and the completion of its job."""

    async def do(prepared: Any, conn: Any) -> bool:
        first = number < 12
        job, node = (prepared.held(number), prepared.node) if first else (prepared.others[number], prepared.second)
        async with conn.transaction():
            await conn.execute("insert into effect values ($1)", job.id)
            function = "ack_in_transaction" if job.key else "ack_keyless"
            given = (node, job.token, job.id, job.attempt, 1)
            await conn.execute(f"select howdah.{function}($1, $2, $3, $4, $5)", *given)
        return True

    return do


async def claim_other(prepared: Any, conn: Any) -> list[int]:
    given = (["other"], [100], 100, prepared.second, LEASE, ["note"], 8, "{}", 0)
    return [row["id"] for row in await conn.fetch(STATEMENTS["claim"], *given)]


async def heartbeat_other(prepared: Any, conn: Any) -> list[int]:
    given = (prepared.second, [prepared.others[14].token], LEASE, "busy", 4, False, 0)
    return list((await conn.fetchrow(STATEMENTS["heartbeat"], *given))["lost"])


async def release_other(prepared: Any, conn: Any) -> tuple[int, ...]:
    return tuple(await conn.fetchrow(STATEMENTS["release"], prepared.second, [prepared.others[14].token]))


async def release_unheard(prepared: Any, conn: Any) -> tuple[int, ...]:
    return tuple(await conn.fetchrow(STATEMENTS["release_unconfirmed"], prepared.node, prepared.token))


async def hold(_ground: Any, conn: Any) -> bool:
    await conn.execute(STATEMENTS["hold"], "note", 60.0, "too many requests")
    return True


# -------------------------------------------------------------------- what upkeep and people do


async def repair(_ground: Any, conn: Any) -> tuple[int, ...]:
    return tuple(await conn.fetchrow("select requeued, ended, leases from howdah.repair(0)"))


async def promote(_ground: Any, conn: Any) -> int:
    return int((await conn.fetchrow(STATEMENTS["promote"], QUEUES, 1000))["promoted"])


def pruning(statement: str, keep: float) -> Any:
    most = [100] if statement == "prune_rows" else []

    async def do(_ground: Any, conn: Any) -> Any:
        return await conn.fetchval(STATEMENTS[statement], keep, keep, *most, *NOBODY)

    return do


async def prune_hourly(prepared: Any, conn: Any) -> Any:
    """As nodes do: a partition, and then single rows. Only together do they remove the same whenever they run."""
    dropped = await pruning("prune_partition", HOUR)(prepared, conn)
    await pruning("prune_rows", HOUR)(prepared, conn)
    return dropped


async def grow(_ground: Any, conn: Any) -> int:
    return int(await conn.fetchval(STATEMENTS["grow"]))


async def delete(prepared: Any, conn: Any) -> dict[int, tuple[str, str]]:
    rows = await conn.fetch(STATEMENTS["delete"], prepared.at(*SEEN), list(SEEN.values()), None, None)
    return {row["id"]: (row["result"], row["was"]) for row in rows}


def rearranging(verb: str, value: Any, *numbers: int) -> Any:
    async def do(prepared: Any, conn: Any) -> dict[int, str]:
        rows = await conn.fetch(STATEMENTS[verb], prepared.at(*numbers), None, value)
        return {row["id"]: row["result"] for row in rows}

    return do


async def resume(_ground: Any, conn: Any) -> bool:
    return bool(await conn.fetchval(STATEMENTS["resume"], "default"))


# -------------------------------------------------------------------- all of them


def form(act: str, name: str, do: Any, *, skips: bool = False) -> Form:
    return Form(act=act, name=name, do=do, skips=skips)


SECOND = {15: RETRY, 16: FAILED, 17: SNOOZED}
SAID: dict[str, Mapping[int, Outcome]] = {
    "ack one done": {4: OK},
    "ack all done": dict.fromkeys((4, 5, 6, 7), OK),
    "ack one to retry": {6: RETRY},
    "ack one of each": EVERY_KIND,
    "ack the last to retry": {6: RETRY},
    "ack one of four": {14: OK},
    "ack a keyed one": {16: FAILED},
    "ack the last of four": SECOND,
    "ack released": {17: RELEASED},
}
FORMS = [
    *(each for each in FIRST_FORMS if each.act != "delete"),
    form("enqueue", "by function", enqueueing("enqueue")),
    form("enqueue", "by statement", enqueueing("enqueue_now")),
    form("enqueue", "many", enqueueing_many(None, None, None)),
    form("enqueue", "with keys", enqueueing_keys("key 9", "new")),
    form("enqueue", "with a key that runs", enqueueing_keys("key 16")),
    form("enqueue", "many with keys", enqueueing_many("key 16", "key 9", "new", None)),
    form("enqueue", "a key of a failed job", enqueueing_many("key 2")),
    form("schedule", "", fire, skips=True),
    form("claim", "from another queue", claim_other, skips=True),
    form("ack", "the last to retry", acking({6: RETRY}, last=True)),
    form("ack", "one of four", acking_other({14: OK})),
    form("ack", "a keyed one", acking_other({16: FAILED})),
    form("ack", "the last of four", acking_other(SECOND, last=True)),
    form("ack", "released", acking_other({17: RELEASED})),
    form("handle", "in a lapsed lease", handling(4)),
    form("handle", "in a live lease", handling(14)),
    form("handle", "with a key", handling(16)),
    form("heartbeat", "of a live lease", heartbeat_other, skips=True),
    form("release", "a live lease", release_other),
    form("release", "what was never answered", release_unheard),
    form("hold", "", hold),
    form("repair", "", repair, skips=True),
    form("promote", "", promote, skips=True),
    form("cancel", "running and due ones", asking("cancel", 12, 13, 14, 16, 18, 19)),
    form("delete", "as seen", delete),
    form("move", "", rearranging("move", "moved", 3, 8, 9, 12, 13, 14, 19)),
    form("reprioritize", "", rearranging("reprioritize", 7, 9, 10, 13, 17)),
    form("resume", "", resume),
    form("prune", "rows of an hour ago", pruning("prune_rows", HOUR), skips=True),
    form("prune", "a partition", pruning("prune_partition", TOMORROW), skips=True),
    form("prune", "a partition of an hour ago", prune_hourly, skips=True),
    form("grow", "", grow, skips=True),
]
RESHAPING = {"grow", "prune a partition", "prune a partition of an hour ago"}
"""Operations that change partitions."""


def says(form: Form) -> dict[int, str]:
    """The outcomes that a worker reports by this operation, by job."""
    return {number: str(outcome) for number, outcome in SAID.get(str(form), {}).items()}
