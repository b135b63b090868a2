"""The world of jobs for the explorer: twenty jobs in every place, three leases, keys, cancel requests, a schedule."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from howdah.job import Job, NewJob
from howdah.jobs.bulk import BulkEnqueue
from howdah.node.registry import new_node
from howdah.postgres.database import Database
from kit.explore_job_operations import FORMS, RESHAPING, SCHEDULE, SEEN, says
from kit.interleave import Form
from kit.interleave_jobs import STATEMENTS, PreparedJobs
from kit.interleave_partitions import SIZE, lay_within_one_partition, make_partition
from kit.job_invariants import wrongs

DAY = 86400.0
TABLES = ("job", "done", "ready", "later", "lease", "gone", "job_key", "cancel_request", "attempt", "tally", "node")
EMPTY = ("queue", "hold", "run", "schedule_declaration")
SLOWED = tuple(f"howdah.{name}" for name in TABLES if name not in ("job", "attempt", "tally", "node"))
# Everything that is compared with the clock lies far from it, so that a round does the same whenever it runs.
SETTLE = """
update howdah.done set finished_at = now() - interval '2 hours';
update howdah.later set due_at = case when queue = 'other' and priority = 0 then now() - interval '1 hour'
    else now() + interval '1 day' end;
update howdah.lease set claimed_at = now() - interval '1 hour';
update howdah.cancel_request set asked_at = now() - interval '1 hour';
update howdah.node set beat_at = now() + interval '1 day';
"""
SUMMARY = """
with leased as (
    select i.id, coalesce('lease ' || array_position($1::int8[], l.token), 'new lease') as name, r.attempt
    from howdah.lease l
    cross join lateral unnest(l.los, l.his, l.attempts) r(lo, hi, attempt)
    cross join lateral generate_series(r.lo, r.hi - 1) i(id)
    where not exists (select from howdah.gone g where g.token = l.token and g.id = i.id)
      and not exists (select from howdah.done d where d.id = i.id)
),
place as (
    select i.id, 'ready' as name, r.attempt
    from howdah.ready r cross join lateral generate_series(r.lo, r.hi - 1) i(id)
    union all select l.id, 'later', l.attempt from howdah.later l
    union all select id, name, attempt from leased
    union all select d.id, 'done ' || d.state::text, d.attempt from howdah.done d
)
select json_build_object(
    'jobs', (
        select json_agg(json_build_array(
            case when j.id <= $2 then j.id - $3 end, j.kind, j.queue, j.priority, j.key,
            (select string_agg(p.name || ' ' || p.attempt, ', ' order by p.name, p.attempt)
             from place p where p.id = j.id),
            exists (select from howdah.cancel_request c where c.id = j.id)))
        from howdah.job j),
    'leases', (
        select json_agg(json_build_array(array_position($1::int8[], l.token), l.expires_at < clock_timestamp()))
        from howdah.lease l where l.token = any($1)),
    'keys', (select json_agg(json_build_array(k.key, case when k.id <= $2 then k.id - $3 end)) from howdah.job_key k),
    'history', (
        select json_agg(json_build_array(case when a.id <= $2 then a.id - $3 end, a.attempt, a.outcome))
        from howdah.attempt a),
    'tally', (select json_agg(json_build_array(t.outcome, t.jobs)) from (
        select outcome, sum(jobs) as jobs from howdah.tally group by outcome) t),
    'paused', (select json_agg(q.name) from howdah.queue q where q.paused),
    'held', (select json_agg(h.kind) from howdah.hold h),
    'fired', (select json_agg(json_build_array(s.name, s.slot_at)) from howdah.schedule s),
    'effects', (select json_agg(e.id - $3) from effect e))
"""
WRONG = """
select 'lease ' || l.token || ' was renewed, and no heartbeat named it'
from howdah.lease l join explored.lease e using (token)
where l.token = any($1) and l.expires_at <> e.expires_at
union all
select 'job ' || id || ' took effect ' || count(*) || ' times' from effect group by id having count(*) > 1
union all
select 'job ' || e.id || ' took effect, and is not done'
from effect e
where not exists (select from howdah.done d where d.id = e.id and d.state = 'd')
  and exists (select from howdah.job j where j.id = e.id)
union all
select 'slot ' || j.run_at || ' was fired ' || count(*) || ' times'
from howdah.job j where j.kind = 'tick' group by j.run_at having count(*) > 1
"""


@dataclass(frozen=True)
class ExplorerJobs(PreparedJobs):
    """The twelve jobs of :class:`PreparedJobs`, and eight in another queue. 12 and 13 are due; 14 to 17 run on a second
    node, 15 is to be cancelled; 18 is under a lease of the first node whose claim was never answered; 19 is not due
    yet. 13 and 16 have keys.
    """

    second: int
    """The other node."""
    others: Mapping[int, Job]
    """The jobs the second node holds, by place."""
    unheard: int
    """The token of the lease that was never answered."""

    @property
    def tokens(self) -> list[int]:
        return [self.token, self.others[14].token, self.unheard]


@dataclass
class Jobs:
    """See :class:`ExplorerJobs`; the same content before every round."""

    name = "jobs"
    independent = False
    forms: Sequence[Form] = field(default_factory=lambda: FORMS)
    low: int = 0
    empty: str = ""
    fill: str = ""
    """Statements that restore the content."""
    reshaped: bool = False
    """Whether the operations of the last round may have changed the partitions."""
    prepared: ExplorerJobs | None = None

    @property
    def statements(self) -> dict[str, str]:
        """Those that the operations send."""
        return STATEMENTS

    async def prepare(self, conn: Any, database: Database) -> None:
        """Make the content once, and save it."""
        prepared = await lay_within_one_partition(conn)
        self.low = prepared.ids[0] // SIZE * SIZE
        given = (new_node(), "there:1", "1", None, ["note"], 10, [], None, 1.0)
        second = await conn.fetchval(STATEMENTS["register"], *given)
        made = await BulkEnqueue("howdah", STATEMENTS).enqueue(conn, [_other(number) for number in range(12, 20)])
        ids = [*prepared.ids, *(each.id for each in made)]
        others = await claim_other(conn, second, 4)
        [unheard] = await claim_other(conn, prepared.node, 1)
        await conn.fetch(STATEMENTS["cancel"], [ids[15]], None, None)
        slot = datetime(2026, 1, 1, tzinfo=UTC)
        await conn.execute(
            "insert into howdah.schedule (name, kind, cron, zone, declaration, slot_at)"
            " values ($1, 'tick', $2, 'UTC', $3, $4)",
            SCHEDULE.name,
            SCHEDULE.cron,
            SCHEDULE.declaration,
            slot,
        )
        await conn.execute("create table effect (id bigint not null); grant all on effect to public")
        await conn.execute(SETTLE)
        held = dict(enumerate(others, 14))
        self.ground = ExplorerJobs(prepared.node, ids, prepared.jobs, second=second, others=held, unheard=unheard.token)
        await self._save(conn)

    async def _save(self, conn: Any) -> None:
        saved = (*TABLES, "schedule")
        await conn.execute("create schema explored")
        for table in saved:
            await conn.execute(f"create table explored.{table} as table howdah.{table}")
        numbers = [await conn.fetchval(f"select last_value from howdah.{name}") for name in ("job_id", "arrival")]
        empty = [f"delete from howdah.{table}" for table in (*saved, *EMPTY)]
        self.empty = ";".join([*empty, "delete from effect"])
        fill = [f"insert into howdah.{table} select * from explored.{table}" for table in saved]
        numbered = f"select setval('howdah.job_id', {numbers[0]}), setval('howdah.arrival', {numbers[1]})"
        self.fill = ";".join([*fill, numbered])

    async def lay(self, conn: Any, forms: Sequence[Form]) -> ExplorerJobs:
        """Restore the content; partitions only where an operation may have changed them."""
        assert self.ground is not None
        async with conn.transaction():
            await conn.execute("set local session_replication_role = replica")  # no sleeps here
            if self.reshaped:
                await conn.execute(self.empty)
                await make_partition(conn, self.low)
                await conn.execute(self.fill)
            else:
                await conn.execute(f"{self.empty};{self.fill}")
        self.reshaped = any(str(form) in RESHAPING for form in forms)
        return self.ground

    def excludes(self, forms: Sequence[Form]) -> bool:
        """A worker says one thing of an attempt, and says that again; it never says another thing."""
        outcomes: dict[int, str] = {}
        return any(outcomes.setdefault(number, what) != what for form in forms for number, what in says(form).items())

    async def summary(self, conn: Any) -> dict[str, list[Any]]:
        """Where each job is, once cancel requests are applied. Jobs that are new have no number."""
        assert self.ground is not None
        await conn.execute("select howdah.apply_cancel_requests()")
        first, last = self.ground.ids[0], self.ground.ids[-1]
        seen = json.loads(await conn.fetchval(SUMMARY, self.ground.tokens, last, first))
        return {name: sorted(rows or (), key=repr) for name, rows in seen.items()}

    async def wrongs(self, conn: Any) -> list[str]:
        assert self.ground is not None
        return [
            *await wrongs(conn),
            *(row[0] for row in await conn.fetch(WRONG, [self.ground.unheard])),
        ]

    def wrong_answer(self, form: Form, result: Any) -> str | None:
        """An enqueue names a job; a delete removes only what is as it was seen."""
        if form.act == "enqueue" and not all(result):
            return f"{form} answered {result}"
        if form.act == "delete" and isinstance(result, dict):
            assert self.ground is not None
            for id, (what, was) in result.items():
                if what == "deleted" and was != SEEN[self.ground.ids.index(id)]:
                    return f"{form} deleted job {id}, which was {was}"
        return None


def _other(number: int) -> NewJob:
    late = {12: 1000.0, 13: 1000.0, 19: 1000.0}.get(number)
    key = f"key {number}" if number in (13, 16) else None
    priority = 5 if number == 19 else 0
    return NewJob(kind="note", queue="other", max_attempts=3, delay=late, key=key, priority=priority)


async def claim_other(conn: Any, node: int, most: int) -> list[Job]:
    """Claim from the second queue, for a day."""
    given = (["other"], [most], most, node, DAY, ["note"], 8, "{}", 0)
    rows = await conn.fetch(STATEMENTS["claim"], *given)
    return [
        Job(row["id"], "other", "note", 1, row["max_attempts"], rows[0]["token"], b"{}", row["key"]) for row in rows
    ]
