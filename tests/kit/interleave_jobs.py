"""Jobs in every place at once, and everything that can be done to them at the same moment."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from howdah.job import Job, NewJob
from howdah.jobs.ack import AckRecorder, array
from howdah.jobs.bulk import BulkEnqueue
from howdah.jobs.hold import Holds
from howdah.node.registry import new_node
from howdah.outcome import Ack, Outcome
from howdah.postgres import sql
from kit.interleave import Form
from kit.job_invariants import wrongs

STATEMENTS = {
    **sql.load("howdah.jobs", schema="howdah"),
    **sql.load("howdah.node", schema="howdah"),
    **sql.load("howdah.maintenance", schema="howdah"),
}
EMPTY = """
delete from howdah.ready; delete from howdah.later; delete from howdah.lease; delete from howdah.gone;
delete from howdah.done; delete from howdah.job; delete from howdah.job_key; delete from howdah.cancel_request;
delete from howdah.attempt; delete from howdah.tally; delete from howdah.queue; delete from howdah.node;
"""
"""Quicker than truncate, as long as there is little in them."""
LAPSE = "update howdah.lease set expires_at = now() - interval '1 second'"
TOMORROW = -86400.0
"""Seconds finished jobs are kept, so that all of them are past their time."""
NOBODY = (None, None, None, None)
"""Who prunes: a node by itself."""
LEASE = 3600.0
PORTRAIT = """
select json_build_object(
    'jobs', (select json_agg(j.id order by j.id) from howdah.job j),
    'ready', (
        select json_agg(json_build_array(i.id, r.attempt) order by r.priority desc, r.rid, i.id)
        from howdah.ready r cross join lateral generate_series(r.lo, r.hi - 1) i(id)),
    'later', (select json_agg(json_build_array(l.id, l.attempt) order by l.id) from howdah.later l),
    'done', (
        select json_agg(json_build_array(d.id, d.state, d.attempt, d.node) order by d.id) from howdah.done d),
    'leases', (
        select json_agg(json_build_array(l.token, l.lapsed, l.los, l.his, l.attempts, l.node) order by l.token)
        from (select *, expires_at < clock_timestamp() as lapsed from howdah.lease) l),
    'gone', (select json_agg(json_build_array(g.id, g.token) order by g.token, g.id) from howdah.gone g),
    'keys', (select json_agg(json_build_array(k.id, k.key) order by k.key) from howdah.job_key k),
    'requests', (select json_agg(c.id order by c.id) from howdah.cancel_request c),
    'history', (
        select json_agg(json_build_array(a.id, a.attempt, a.outcome) order by a.id, a.attempt, a.outcome)
        from howdah.attempt a),
    'tally', (select json_agg(json_build_array(t.outcome, t.jobs) order by t.outcome) from howdah.tally t),
    'paused', (select json_agg(q.name order by q.name) from howdah.queue q where q.paused)) as seen
"""


class SingleConnection:
    """One connection as the engine's own code knows it."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def fetch(self, statement: str, *args: Any, timeout: float | None = None) -> list[Any]:
        return list(await self._conn.fetch(statement, *args, timeout=timeout))

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Any]:
        yield self._conn


@dataclass(frozen=True)
class PreparedJobs:
    """Twelve jobs. 0 failed long ago; 1 to 7 are under one lease that has run out: 1 done, 2 failed, 3 to be retried
    later, 4 to 7 running, 5 for the last time; 8 to 11 wait. 2 and 9 have keys.
    """

    node: int
    ids: Sequence[int]
    jobs: Sequence[Job]
    """As the node holds them, 1 to 7."""

    @property
    def token(self) -> int:
        return int(self.jobs[0].token)

    def held(self, number: int) -> Job:
        """The job at this place, as it was claimed."""
        return self.jobs[number - 1]

    def at(self, *numbers: int) -> list[int]:
        """The ids of the jobs at these places."""
        return [self.ids[number] for number in numbers]

    async def wrongs(self, conn: Any) -> list[str]:
        """All that is wrong with the tables; nothing but a prune may remove a job, and only one that was over."""
        return await wrongs(conn, [self.ids[0] + number for number in (await self.portrait(conn))["jobs"]])

    async def portrait(self, conn: Any) -> dict[str, Any]:
        """Rows once cancel requests are applied, by places instead of ids: two grounds can be compared."""
        await conn.execute("select howdah.apply_cancel_requests()")
        seen = json.loads(await conn.fetchval(PORTRAIT))
        first, ranks = self.ids[0], {lease[0]: f"lease {rank}" for rank, lease in enumerate(seen["leases"] or ())}
        held, ranks = set(ranks), ranks | {self.token: "the lease"}
        return {
            "leases": [
                (ranks[token], lapsed, [lo - first for lo in los], [hi - first for hi in his], attempts)
                for token, lapsed, los, his, attempts, _ in seen.pop("leases") or ()
            ],
            # what is left of leases that are over is pruned, and does nothing until then
            "gone": [(id - first, ranks[token]) for id, token in seen.pop("gone") or () if token in held],
            "done": [(id - first, state, attempt, node is None) for id, state, attempt, node in seen.pop("done") or ()],
            **{name: seen.pop(name) for name in ("tally", "paused")},
            **{name: [_placed(each, first) for each in rows or ()] for name, rows in seen.items()},
        }


def _placed(row: Any, first: int) -> Any:
    return row - first if isinstance(row, int) else (row[0] - first, *row[1:])


async def lay(conn: Any) -> PreparedJobs:
    """Begin anew with twelve jobs."""
    await conn.execute(EMPTY)
    given = (new_node(), "here:1", "1", None, ["note"], 10, [], None, 1.0)
    node = await conn.fetchval(STATEMENTS["register"], *given)
    made = await BulkEnqueue("howdah", STATEMENTS).enqueue(conn, [_new(number) for number in range(12)])
    ids = [each.id for each in made]
    [old] = await claim(conn, node, 1)
    await ack(conn, node, [_ended(old, Outcome.FAILED)], [old.token])
    jobs = await claim(conn, node, 7)
    one, two, three, *_ = jobs
    await ack(conn, node, [Ack(one, Outcome.OK, 1), _ended(two, Outcome.FAILED), _ended(three, Outcome.RETRY)], [])
    await conn.execute(LAPSE)
    return PreparedJobs(node, ids, jobs)


def _new(number: int) -> NewJob:
    return NewJob(kind="note", max_attempts=1 if number == 5 else 3, key=f"key {number}" if number in (2, 9) else None)


def _ended(job: Job, outcome: Outcome) -> Ack:
    return Ack(job, outcome, 1, error="E", message="on purpose", delay=1000.0)


async def claim(conn: Any, node: int, most: int) -> list[Job]:
    """What a store does, without what it remembers."""
    given = (["default"], [most], most, node, LEASE, ["note"], 8, "{}", 0)
    jobs: list[Job] = []
    first: Any = None
    for row in await conn.fetch(STATEMENTS["claim"], *given):
        first = row if row["rid"] is not None else first
        shared = (first["queue"], first["kind"], first["attempt"], row["max_attempts"], first["token"])
        jobs.append(Job(row["id"], *shared, row["args"], row["key"]))
    return jobs


async def ack(conn: Any, node: int, acks: Sequence[Ack], finished: Sequence[int]) -> dict[int, str]:
    """What was accepted, by id."""
    session: Any = SingleConnection(conn)
    recorder = AckRecorder(session, STATEMENTS, lambda _: None, Holds(session, STATEMENTS))
    return {ack.job.id: str(ack.outcome) for ack in await recorder.ack(node, acks, finished)}


# -------------------------------------------------------------------- what can be done


def claiming(most: int) -> Any:
    async def do(prepared: PreparedJobs, conn: Any) -> list[int]:
        return [job.id for job in await claim(conn, prepared.node, most)]

    return do


def acking(outcomes: dict[int, Outcome], *, last: bool) -> Any:
    async def do(prepared: PreparedJobs, conn: Any) -> dict[int, str]:
        acks = [
            Ack(prepared.held(number), Outcome.OK, 1)
            if outcome is Outcome.OK
            else _ended(prepared.held(number), outcome)
            for number, outcome in outcomes.items()
        ]
        return await ack(conn, prepared.node, acks, [prepared.token] if last else [])

    return do


def acking_in_transaction(function: str, number: int = 4) -> Any:
    async def do(prepared: PreparedJobs, conn: Any) -> str:
        job = prepared.held(number)
        given = (prepared.node, job.token, job.id, job.attempt, 1)
        return str(await conn.execute(f"select howdah.{function}($1, $2, $3, $4, $5)", *given))

    return do


def acking_in_batch(*numbers: int) -> Any:
    async def do(prepared: PreparedJobs, conn: Any) -> list[int]:
        jobs = [prepared.held(number) for number in numbers]
        keyed = [job for job in jobs if job.key is not None]
        columns = ([job.id for job in jobs], [job.attempt for job in jobs], [1] * len(jobs))
        keys = ([job.key for job in keyed], [job.id for job in keyed])
        given = (prepared.node, [prepared.token], [len(jobs)], *map(array, columns), [], *keys)
        async with conn.transaction():
            held = await conn.fetch(STATEMENTS["ack_batch"], *given)
            left = {row["id"] for row in await conn.fetch(STATEMENTS["left_jobs"], [prepared.token])}
            if not held or left & {job.id for job in jobs}:
                await conn.execute("do $$ begin raise exception 'lost' using errcode = 'HW001'; end $$")
        return [job.id for job in jobs]

    return do


async def heartbeat(prepared: PreparedJobs, conn: Any) -> list[int]:
    given = (prepared.node, [prepared.token], LEASE, "busy", 4, False, 0)
    return list((await conn.fetchrow(STATEMENTS["heartbeat"], *given))["lost"])


def asking(verb: str, *numbers: int) -> Any:
    async def do(prepared: PreparedJobs, conn: Any) -> dict[int, str]:
        rows = await conn.fetch(STATEMENTS[verb], prepared.at(*numbers), None, None)
        return {row["id"]: row["result"] for row in rows}

    return do


def deleting(seen: dict[int, str]) -> Any:
    """Delete jobs as they were seen; by bare ids a job that is retried meanwhile is passed by."""

    async def do(prepared: PreparedJobs, conn: Any) -> dict[int, str]:
        rows = await conn.fetch(STATEMENTS["delete"], prepared.at(*seen), list(seen.values()), None, None)
        return {row["id"]: row["result"] for row in rows}

    return do


async def reset(_ground: PreparedJobs, conn: Any) -> tuple[int, ...]:
    return tuple(await conn.fetchrow(STATEMENTS["reset"], 100, True, True, None))


async def release(prepared: PreparedJobs, conn: Any) -> tuple[int, ...]:
    return tuple(await conn.fetchrow(STATEMENTS["release"], prepared.node, [prepared.token]))


async def prune(_ground: PreparedJobs, conn: Any) -> int:
    return int(await conn.fetchval(STATEMENTS["prune_rows"], TOMORROW, TOMORROW, 100, *NOBODY))


async def pause(_ground: PreparedJobs, conn: Any) -> bool:
    return bool(await conn.fetchval(STATEMENTS["pause"], "default", "somebody"))


OK, FAILED, RETRY = Outcome.OK, Outcome.FAILED, Outcome.RETRY
EVERY_KIND = {4: FAILED, 5: RETRY, 6: Outcome.SNOOZED, 7: Outcome.RELEASED}
IN_TRANSACTION = {"lease": "key share", "4": "update"}
IN_BATCH = {"lease": "no key update", "4": "update", "5": "update", "6": "update"}
SEEN = {0: "failed", 1: "done", 2: "failed", 6: "queued", 9: "queued"}
"""What is deleted; 6 was seen before it was claimed."""
LEASED, OVER, RUN = {"lease": "update"}, {"0": "update", "2": "update"}, {"run": "update"}

FORMS = [
    Form(act="claim", name="one", do=claiming(1), locks=RUN, skips=True),
    Form(act="claim", name="many", do=claiming(100), locks=RUN, skips=True),
    Form(act="ack", name="one done", do=acking({4: OK}, last=False), locks=LEASED),
    Form(act="ack", name="all done", do=acking(dict.fromkeys((4, 5, 6, 7), OK), last=True), locks=LEASED),
    Form(act="ack", name="one to retry", do=acking({6: RETRY}, last=False), locks=LEASED),
    Form(act="ack", name="one of each", do=acking(EVERY_KIND, last=True), locks=LEASED),
    Form(act="ack", name="in a transaction", do=acking_in_transaction("ack_in_transaction"), locks=IN_TRANSACTION),
    Form(act="ack", name="in a transaction, keyless", do=acking_in_transaction("ack_keyless"), locks=IN_TRANSACTION),
    Form(act="ack", name="in a batch", do=acking_in_batch(4, 5, 6), locks=IN_BATCH),
    Form(
        act="heartbeat",
        name="",
        do=heartbeat,
        locks={"lease": "no key update", "node": "no key update"},
        skips={"lease"},
    ),
    Form(
        act="cancel",
        name="a running one",
        do=asking("cancel", 6),
        locks={"request of 6": "update"},
    ),
    Form(act="cancel", name="a waiting one", do=asking("cancel", 9), locks=RUN | {"request of 9": "update"}),
    Form(
        act="cancel",
        name="all",
        do=asking("cancel", *range(12)),
        locks=RUN | {"request of 6": "update", "request of 9": "update", "later": "update"},
    ),
    Form(act="retry", name="one", do=asking("retry", 2), locks={"2": "update"}),
    Form(act="retry", name="many", do=asking("retry", 0, 1, 2), locks=OVER),
    Form(act="retry", name="a running one", do=asking("retry", 4)),
    Form(act="delete", name="many", do=deleting(SEEN), locks=RUN | OVER),
    Form(act="reset", name="", do=reset, locks=LEASED, skips=True),
    Form(act="reset", name="by release", do=release, locks=LEASED),
    Form(act="prune", name="", do=prune, locks={"0": "update"}, skips=True),  # the lease still names 1 and 2
    Form(act="pause", name="", do=pause, locks={"queue": "update"}),
]
ACTS = list(dict.fromkeys(form.act for form in FORMS))
