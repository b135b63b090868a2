"""An outcome that the database refuses is recorded without what it refused, and its neighbours as they are."""

from __future__ import annotations

import time

import asyncpg
import pytest

from howdah import Backoff, Snooze
from howdah.jobs.ack import is_rejection
from kit.node import EVENTUALLY_TIMEOUT, ended, eventually, job, node

pytestmark = [pytest.mark.anyio, pytest.mark.superuser("triggers on tables of another role")]

REFUSE = """
create function refuse() returns trigger language plpgsql as $$
declare
    given jsonb := to_jsonb(new);
begin
    if given ->> 'result' = 'refused' then
        raise exception 'this result is not welcome' using errcode = '23514';
    elsif given ->> 'message' = 'refused' then
        raise exception 'this error is not welcome';
    elsif (given ->> 'due_at')::timestamptz > now() + interval '1 hour' then
        raise exception 'too late' using errcode = '54000';
    end if;
    return new;
end $$;
create trigger refuse before insert on howdah.done for each row execute function refuse();
create trigger refuse before insert on howdah.attempt for each row execute function refuse();
create trigger refuse before insert on howdah.later for each row execute function refuse();
"""


@pytest.fixture
def tasks(app):
    @app.task(max_attempts=3, retry=Backoff(first=0))
    async def answer(what: str) -> object:
        match what:
            case "raises":
                raise ValueError("refused")
            case "snoozes":
                return Snooze(86400)
            case "plain":
                return None
        return what

    return answer


async def test_the_culprit_is_found_and_its_neighbours_are_recorded(app, conn, tasks):
    await conn.execute(REFUSE)
    culprits = {what: 40 * index for index, what in enumerate(("refused", "raises", "snoozes"), 1)}
    jobs = [tasks.job("plain" if n % 2 else "kept") for n in range(200)]
    for what, index in culprits.items():
        jobs[index] = tasks.job(what)
    made = await app.enqueue_many(jobs)

    async with node(app, slots=200):
        rows = [await ended(conn, each.id) for each in made]
        assert await eventually(lambda: _no_lease(conn))
    by_kind = {what: rows[index] for what, index in culprits.items()}
    assert all(row["state"] == "done" and not row["error"] for row in rows if row not in by_kind.values())
    assert by_kind["refused"]["state"] == "done"  # its work is done
    assert by_kind["refused"]["error"] == (
        "ResultNotStored: the database rejected it: CheckViolationError: this result is not welcome"
    )
    for what in ("raises", "snoozes"):
        assert (by_kind[what]["state"], by_kind[what]["attempt"]) == ("failed", 1)
    assert by_kind["raises"]["error"] == (
        "OutcomeNotStored: retry: the database rejected it: RaiseError: this error is not welcome"
    )
    assert by_kind["snoozes"]["error"].startswith("OutcomeNotStored: snoozed: the database rejected it: ")


async def test_a_job_of_which_no_outcome_can_be_stored_blocks_nobody(app, conn, tasks):
    await conn.execute(
        """
        create function refuse() returns trigger language plpgsql as $$
        begin
            if new.id = (select min(id) from howdah.job) then
                raise exception 'never';
            end if;
            return new;
        end $$;
        create trigger refuse before insert on howdah.done for each row execute function refuse();
        """
    )
    made = await app.enqueue_many(tasks.job("plain" if n % 2 else "kept") for n in range(50))

    async with node(app, slots=50, lease=60.0, upkeep=False):
        for each in made[1:]:
            assert (await ended(conn, each.id))["state"] == "done"
        began = time.monotonic()
    assert time.monotonic() - began < EVENTUALLY_TIMEOUT / 2
    assert (await job(conn, made[0].id))["state"] == "running"  # until its lease runs out
    assert await conn.fetchval("select count(*) from howdah.lease") == 1


async def _no_lease(conn):
    return not await conn.fetchval("select count(*) from howdah.lease")


@pytest.mark.parametrize(
    ("statement", "values", "refused"),
    [
        ("select $1::int4", ["x"], True),
        ("select $1::int4", [2**40], True),
        ("select $1::text", ["\ud800"], True),
        ("select $1::text", ["\0"], True),
        ("select $1::float8 * interval '1 second'", [1e300], True),
        ("select 1 / $1::int4", [0], True),
        ("do $$ begin raise exception 'no'; end $$", [], True),
        ("select nothing", [], False),
        ("do $$ begin raise exception 'no' using errcode = '53100'; end $$", [], False),
        ("do $$ begin raise exception 'no' using errcode = '40001'; end $$", [], False),
        ("do $$ begin raise exception 'no' using errcode = '57P01'; end $$", [], False),
    ],
)
async def test_refusals_are_told_from_outages(conn, statement, values, refused):
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)) as caught:
        await conn.fetch(statement, *values)
    assert is_rejection(caught.value) is refused


async def test_a_closed_connection_is_no_refusal(conn, database):
    other = await asyncpg.connect(database.dsn)
    await other.close()
    with pytest.raises(asyncpg.InterfaceError) as caught:
        await other.fetch("select 1")
    assert not is_rejection(caught.value)
