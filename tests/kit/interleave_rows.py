"""Rows of a user's table in every state at once, and everything that can be done to them at the same moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from howdah import Howdah
from howdah.postgres.sql import columns
from howdah.table.admin import TableAdmin
from howdah.table.plan import TablePlan
from kit.interleave import Form
from table.ddl import ddl

STALLED, RESETS = 30.0, 2
FILL = """
insert into uploads
    (id, state, num_failures, num_resets, cancel, lease_token, started_at, finished_at, last_heartbeat_at)
overriding system value
select id, state, failures, resets, cancel, token, started_at, finished_at, heard_at
from (values
    (1, 'failed', 3, 0, false, -7, now(), now(), now()),
    (2, 'completed', 0, 0, false, -7, now(), now(), now()),
    (3, 'errored', 1, 0, false, -7, now(), now(), now()),
    (4, 'queued', 0, 0, false, null, null, null, null),
    (5, 'queued', 0, 0, true, null, null, null, null),
    (6, 'processing', 0, 0, false, -9, now(), null, now() - interval '1 hour'),
    (7, 'processing', 0, 0, false, -9, now(), null, now() - interval '1 hour'),
    (8, 'processing', 0, {resets}, false, -9, now(), null, now() - interval '1 hour')
) row(id, state, failures, resets, cancel, token, started_at, finished_at, heard_at)
"""
TOKEN = -9
HEARD = """
select id, lease_token, extract(epoch from last_heartbeat_at)::float8 as heard
from uploads
where state = 'processing' and last_heartbeat_at < now() - interval '30 seconds'
order by id
"""
WRONG = """
select 'row ' || id || ' is ' || state || ' and ' || wrong
from (
    select id, state, case
        when state = 'processing' and (lease_token is null or started_at is null or last_heartbeat_at is null)
            then 'nobody works on it'
        when state = 'processing' and finished_at is not null then 'has ended'
        when state in ('failed', 'completed', 'canceled') and finished_at is null then 'has not ended'
        when state in ('queued') and (started_at is not null or finished_at is not null) then 'has begun or ended'
        when num_resets > {resets} then 'was reset too often'
        end as wrong
    from uploads
) t
where wrong is not null
union all
select rows || ' rows are left' from (select count(*) as rows from uploads) t where rows <> 8
"""


@dataclass(frozen=True)
class PreparedRows:
    """Eight rows. 1 failed, 2 completed, 3 errored, 4 waits, 5 waits and is not wanted; 6 to 8 are worked on by one who
    is silent, 8 for the last time.
    """

    plan: TablePlan

    async def portrait(self, conn: Any) -> list[tuple[Any, ...]]:
        """What the table says of each. Heartbeats pass by locked rows, and matter only while a row is processed."""
        rows = await conn.fetch(
            "select id, state, num_failures, num_resets, cancel, lease_token, started_at is null, finished_at is null,"
            " process_after is null, state = 'processing' and last_heartbeat_at < now() - interval '1 minute',"
            " failure_message"
            " from uploads order by id"
        )
        return [
            tuple(
                "new" if name == "lease_token" and value not in (None, -7, TOKEN) else value
                for name, value in row.items()
            )
            for row in rows
        ]

    async def lay(self, conn: Any) -> PreparedRows:
        """Begin anew."""
        await conn.execute("delete from uploads; " + FILL.format(resets=RESETS))
        return self

    async def wrongs(self, conn: Any) -> list[str]:
        """What can never be."""
        return [row[0] for row in await conn.fetch(WRONG.format(resets=RESETS))]


async def prepare(conn: Any, dsn: str) -> PreparedRows:
    """Make the table."""
    await conn.execute(ddl())
    table = Howdah(dsn).table("uploads", stalled_after=STALLED, max_resets=RESETS)
    return PreparedRows(await TablePlan.make(conn, table.options, "howdah"))


def claiming(most: int) -> Any:
    async def do(rows: PreparedRows, conn: Any) -> list[int]:
        statement, values = rows.plan.claim(None)
        return [row["id"] for row in await conn.fetch(statement, most, "me", 17, [], *values)]

    return do


def acking(states: dict[int, tuple[str, float | None]]) -> Any:
    async def do(rows: PreparedRows, conn: Any) -> dict[int, str]:
        reports = [(id, TOKEN, state, delay, None) for id, (state, delay) in states.items()]
        answer_rows = await conn.fetch(rows.plan.sql["ack"], *columns(reports, 5))
        return {row["id"]: row["state"] for row in answer_rows}

    return do


async def ack_in_transaction(rows: PreparedRows, conn: Any) -> Any:
    return await conn.fetchval(rows.plan.sql["ack_in_transaction"], 6, TOKEN)


async def heartbeat(rows: PreparedRows, conn: Any) -> list[int]:
    return [row["id"] for row in await conn.fetch(rows.plan.sql["heartbeat"], [6, 7, 8], [TOKEN])]


async def reset(rows: PreparedRows, conn: Any) -> list[tuple[int, str]]:
    seen = await conn.fetch(HEARD)
    ids, tokens, heard = ([row[name] for row in seen] for name in ("id", "lease_token", "heard"))
    now = await conn.fetchval("select extract(epoch from clock_timestamp())::float8")
    answer_rows = await conn.fetch(rows.plan.sql["reset"], ids, tokens, heard, now, STALLED, RESETS, "stalled")
    return sorted((row["id"], row["state"]) for row in answer_rows)


async def cancel(rows: PreparedRows, conn: Any) -> list[int]:
    return [row["id"] for row in await conn.fetch(rows.plan.sql["cancel"], 100, [], None)]


async def expire(rows: PreparedRows, conn: Any) -> list[int]:
    return [row["id"] for row in await conn.fetch(rows.plan.sql["expire"], [6, 7, 8], [TOKEN])]


def asking(verb: str, ids: Sequence[int]) -> Any:
    async def do(rows: PreparedRows, conn: Any) -> dict[Any, str]:
        return {each.id: each.result for each in await getattr(TableAdmin(conn, rows.plan), verb)(ids)}

    return do


def rows(*ids: int) -> dict[str, str]:
    return {str(id): "no key update" for id in ids}


ALL = range(1, 9)
FORMS = [
    Form(act="claim", name="one", do=claiming(1), locks=rows(3), skips=True),
    Form(act="claim", name="many", do=claiming(100), locks=rows(3, 4), skips=True),
    Form(act="ack", name="one", do=acking({6: ("completed", None)}), locks=rows(6), skips=True),
    Form(
        act="ack",
        name="one of each",
        do=acking({6: ("errored", 60.0), 7: ("queued", None), 8: ("failed", None)}),
        locks=rows(6, 7, 8),
        skips=True,
    ),
    Form(act="ack", name="in a transaction", do=ack_in_transaction, locks=rows(6)),
    Form(act="heartbeat", name="", do=heartbeat, locks=rows(6, 7, 8), skips=True),
    Form(act="cancel", name="a running one", do=asking("cancel", [6]), locks=rows(6)),
    Form(act="cancel", name="all", do=asking("cancel", ALL), locks=rows(*ALL)),
    Form(act="cancel", name="by upkeep", do=cancel, locks=rows(5), skips=True),
    Form(act="retry", name="one", do=asking("retry", [1]), locks=rows(1)),
    Form(act="retry", name="all", do=asking("retry", ALL), locks=rows(*ALL)),
    Form(act="requeue", name="one", do=asking("requeue", [2]), locks=rows(2)),
    Form(act="requeue", name="all", do=asking("requeue", ALL), locks=rows(*ALL)),
    Form(act="reset", name="", do=reset, locks=rows(6, 7, 8), skips=True),
    Form(act="expire", name="", do=expire, locks=rows(6, 7, 8), skips=True),
]
ACTS = list(dict.fromkeys(form.act for form in FORMS))
