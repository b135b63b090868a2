"""Moments that Python cannot read are refused, and rows that have one already do not blind the readers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import asyncpg
import pytest
from click.testing import CliRunner

from howdah import ArgumentError, Howdah
from howdah.cli import main
from howdah.jobs.search import Filter
from kit.interleave import switch_off

pytestmark = pytest.mark.anyio

FAR = ["9999-12-31 23:30-01", "infinity", "-infinity", "0001-01-01 00:00 BC", "200000-01-01", "9999-12-30 00:00+00"]


@pytest.fixture
def work(app: Howdah):
    @app.task
    async def work() -> None: ...

    return work


@pytest.mark.parametrize("moment", FAR)
async def test_sql_refuses_a_moment_that_python_cannot_read(conn, moment):
    with pytest.raises(asyncpg.InvalidParameterValueError, match="run_at must be a moment"):
        await conn.fetch(f"select * from howdah.enqueue('work', run_at => '{moment}')")
    assert await conn.fetchval("select count(*) from howdah.job") == 0


BOUND = "run_at >= '0001-01-02 00:00:00+00' and run_at < '9999-12-30 00:00:00+00'"


async def test_control_without_the_bound_a_row_is_taken_that_python_cannot_read(conn):
    await switch_off(conn, "enqueue", BOUND, "true")
    id = await conn.fetchval("select id from howdah.enqueue('work', run_at => '9999-12-31 23:30-01')")
    with pytest.raises(OverflowError):
        await conn.fetchval("select run_at from howdah.job where id = $1", id)


@pytest.mark.parametrize("moment", ["9999-12-29 23:59:59+00", "0001-01-02 00:00+00", "1970-01-01"])
async def test_sql_takes_every_other_moment(app, conn, work, moment):
    id = await conn.fetchval(f"select id from howdah.enqueue('work', run_at => '{moment}')")
    assert (await app.admin.get(id)).run_at.tzinfo is not None


@pytest.mark.parametrize(
    "moment",
    [
        datetime.max.replace(tzinfo=UTC),
        datetime(9999, 12, 31, 23, 30, tzinfo=timezone(timedelta(hours=-1))),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    ],
)
async def test_python_refuses_it_too(app, work, conn, moment):
    for enqueue in (
        lambda: work.using(run_at=moment).enqueue(),
        lambda: app.enqueue_many([work.using(run_at=moment).job()]),
        lambda: app.enqueue_many([work.using(run_at=moment).job()], conn=conn),
    ):
        with pytest.raises(ArgumentError, match="run_at must be from 0001-01-02 to 9999-12-29"):
            await enqueue()
    assert await conn.fetchval("select count(*) from howdah.job") == 0


@pytest.mark.parametrize("moment", ["9999-12-31 23:30-01", "infinity", "0044-03-15 BC"])
async def test_a_row_from_before_is_shown_at_the_nearest_moment(app, work, conn, database, moment):
    """The release before let such rows in."""
    odd = (await work.using(delay=3600).enqueue()).id
    plain = (await work.enqueue()).id
    await conn.execute(f"update howdah.job set run_at = '{moment}' where id = $1", odd)
    await conn.execute(f"update howdah.later set due_at = '{moment}' where id = $1", odd)

    row = await app.admin.get(odd)
    assert row.run_at.year in (1, 9999)
    assert {each.id for each in await app.admin.list()} == {odd, plain}
    assert {each.id for each in await app.admin.list(Filter(state="queued"))} == {odd, plain}
    gates = await app.why.job(odd)
    assert gates
    await app.close()


async def test_the_commands_show_such_a_row(app, work, conn, database):
    odd = (await work.using(delay=3600).enqueue()).id
    await app.close()
    await conn.execute("update howdah.job set run_at = '9999-12-31 23:30-01'")
    await conn.execute("update howdah.later set due_at = '9999-12-31 23:30-01'")
    for command in (["jobs"], ["job", str(odd)], ["why", str(odd)]):
        result = await asyncio.to_thread(CliRunner().invoke, main, [*command, "--dsn", database.dsn])
        assert result.exit_code in (0, 1), result.output
        assert not isinstance(result.exception, OverflowError)
