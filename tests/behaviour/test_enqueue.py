"""Enqueue: single, in a transaction, together, in bulk, from synchronous code."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from howdah import ArgumentError, ConfigError, Howdah, NewJob, Poison
from kit.node import drain, ended, job, node

pytestmark = pytest.mark.anyio


@pytest.fixture
def greet(app):
    @app.task(queue="mail", priority=3, max_attempts=7, timeout=60)
    async def greet(user_id: int, *, lang: str = "en") -> str:
        return f"{lang}:{user_id}"

    return greet


async def test_a_job_carries_what_its_task_says(app, greet, conn):
    made = await greet.using(meta={"tenant": 4}).enqueue(7, lang="de")

    row = await job(conn, made.id)
    assert made.fresh
    assert (row["queue"], row["kind"], row["priority"], row["max_attempts"]) == ("mail", "greet", 3, 7)
    assert (row["args"], row["meta"], row["timeout"]) == (b'{"user_id":7,"lang":"de"}', b'{"tenant":4}', 60)
    assert row["state"] == "queued"
    await drain(app)
    assert (await job(conn, made.id))["result"] == b'"de:7"'


async def test_settings_can_be_changed_for_one_call(greet, conn):
    other = greet.using(queue="slow", priority=-5, max_attempts=1, timeout=2.5, delay=3600)
    row = await job(conn, (await other.enqueue(1)).id)

    assert (row["queue"], row["priority"], row["max_attempts"], row["timeout"]) == ("slow", -5, 1, 2.5)
    assert timedelta(minutes=59) < row["run_at"] - row["enqueued_at"] < timedelta(minutes=61)


async def test_an_enqueue_rolls_back_with_the_callers_transaction(app, greet, database, conn):
    own = await asyncpg.connect(database.dsn, statement_cache_size=0)
    transaction = own.transaction()
    await transaction.start()
    made = await greet.using(conn=own).enqueue(1)
    many = await app.enqueue_many([greet.job(2), greet.job(3)], conn=own)
    await transaction.rollback()
    await own.close()

    assert await conn.fetchval("select count(*) from howdah.jobs") == 0
    assert await conn.fetchval("select count(*) from howdah.ready") == 0
    assert len({made.id, *(each.id for each in many)}) == 3


async def test_a_connection_with_codecs_of_its_own_can_be_used(app, greet, database, conn):
    import json

    own = await asyncpg.connect(database.dsn, statement_cache_size=0)
    await own.set_type_codec("json", schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
    async with own.transaction():
        one = await greet.using(conn=own, meta={"a": "b\\n\t"}).enqueue(1, lang='x"\\\n\t')
        [two] = await app.enqueue_many([greet.using(meta={"a": "b\\n\t"}).job(1, lang='x"\\\n\t')], conn=own)
    await own.close()

    first, second = await job(conn, one.id), await job(conn, two.id)
    assert json.loads(first["args"]) == json.loads(second["args"]) == {"user_id": 1, "lang": 'x"\\\n\t'}
    assert json.loads(first["meta"]) == json.loads(second["meta"]) == {"a": "b\\n\t"}


async def test_a_bulk_is_a_few_runs(app, greet, conn):
    made = await app.enqueue_many(greet.job(i) for i in range(12_000))

    assert len({each.id for each in made}) == 12_000
    assert await conn.fetchval("select sum(hi - lo) from howdah.ready") == 12_000
    assert await conn.fetchval("select count(*) from howdah.ready") <= 30
    await drain(app)
    assert await conn.fetchval("select count(*) from howdah.done where state = 'd'") == 12_000


async def test_a_mixed_bulk_answers_in_order(app, greet, conn):
    @app.task
    async def other(x: str) -> str:
        return x

    soon = datetime.now(UTC) + timedelta(hours=1)
    jobs = [
        greet.job(1),
        other.job("a"),
        greet.using(priority=9).job(2),
        other.using(run_at=soon).job("b"),
        other.using(delay=0.0).job("c"),
        greet.using(key="k").job(3),
        greet.using(key="k").job(4),
    ]
    made = await app.enqueue_many(jobs)

    rows = [await job(conn, each.id) for each in made]
    assert [row["kind"] for row in rows[:5]] == ["greet", "other", "greet", "other", "other"]
    assert [row["args"] for row in rows[:3]] == [b'{"user_id":1}', b'{"x":"a"}', b'{"user_id":2}']
    assert abs(rows[3]["run_at"] - soon) < timedelta(seconds=1)
    assert [each.fresh for each in made] == [True] * 6 + [False]
    assert made[6].id == made[5].id


async def test_calls_at_the_same_time_travel_together(app, greet, conn):
    made = await asyncio.gather(*(greet.enqueue(i) for i in range(500)))

    assert len({each.id for each in made}) == 500
    assert await conn.fetchval("select count(*) from howdah.jobs") == 500
    assert await conn.fetchval("select count(*) from howdah.ready") < 50
    rows = await conn.fetch("select id, args from howdah.jobs")
    assert {row["id"]: row["args"] for row in rows} == {
        each.id: f'{{"user_id":{i}}}'.encode() for i, each in enumerate(made)
    }


async def test_synchronous_code_can_enqueue(app, greet, conn):
    made = await asyncio.to_thread(greet.enqueue_sync, 7)

    assert (await job(conn, made.id))["args"] == b'{"user_id":7}'


async def test_one_live_job_per_key(app, greet, conn):
    first = await greet.using(key="welcome-7").enqueue(7)
    second = await greet.using(key="welcome-7").enqueue(7)
    racing = await asyncio.gather(*(greet.using(key="race").enqueue(i) for i in range(50)))

    assert (first.fresh, second) == (True, (first.id, False))
    assert sum(each.fresh for each in racing) == 1
    assert len({each.id for each in racing}) == 1
    await drain(app)
    assert (await greet.using(key="welcome-7").enqueue(7)).fresh, "the key is free once its job is over"


async def test_keys_race_between_connections(app, greet, database):
    async def one(i: int) -> bool:
        own = await asyncpg.connect(database.dsn, statement_cache_size=0)
        try:
            async with own.transaction():
                return (await greet.using(key="only", conn=own).enqueue(i)).fresh
        finally:
            await own.close()

    assert sum(await asyncio.gather(*(one(i) for i in range(12)))) == 1


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((), {}, "missing argument"),
        ((1, 2), {}, "at most 1 positional"),
        ((1,), {"language": "de"}, "unknown argument `language`"),
        (("seven",), {}, "expected `int`, got `str`"),
        ((1,), {"lang": float("nan")}, "NaN|expected `str`"),
        ((1,), {"lang": "a\0b"}, "NUL"),
        ((1,), {"lang": "\ud800"}, "surrogate"),
        ((1,), {"lang": "x" * 1_100_000}, "1,048,576 are allowed"),
        ((1,), {"user_id": 2}, "twice"),
        ((object(),), {}, "no JSON form"),
    ],
)
async def test_what_cannot_be_sent_is_refused_before_anything_is(greet, conn, args, kwargs, words):
    with pytest.raises(ArgumentError, match=words):
        await greet.enqueue(*args, **kwargs)
    assert await conn.fetchval("select count(*) from howdah.job") == 0


async def test_what_is_not_json_is_refused_wherever_it_hides(app, conn):
    @app.task
    async def anything(x: object) -> None: ...

    deep: object = 1
    for _ in range(200):
        deep = [deep]
    for value in (float("inf"), [1, {"a": float("nan")}], {"a": "\0"}, deep):
        with pytest.raises(ArgumentError):
            await anything.enqueue(value)
    assert await conn.fetchval("select count(*) from howdah.job") == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"priority": 101}, "priority must be from -100 to 100, got 101"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"timeout": -1}, "timeout"),
        ({"delay": -1}, "delay"),
        ({"queue": ""}, "queue"),
        ({"queue": "x" * 101}, "queue"),
        ({"key": "x" * 301}, "key"),
        ({"run_at": datetime(2030, 1, 1)}, "time zone"),
        ({"run_at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 3}, "not both"),
        ({"meta": {"a": float("nan")}}, "meta"),
    ],
)
async def test_bad_settings_are_refused(greet, conn, settings, words):
    with pytest.raises(ArgumentError, match=words):
        await greet.using(**settings).enqueue(1)
    with pytest.raises(ArgumentError, match=words):
        greet.using(**settings).job(1)
    assert await conn.fetchval("select count(*) from howdah.job") == 0


async def test_a_bulk_with_one_bad_job_enqueues_none(app, greet, conn):
    with pytest.raises(ArgumentError):
        await app.enqueue_many([greet.job(1), NewJob(kind="greet", priority=1000)])
    assert await conn.fetchval("select count(*) from howdah.job") == 0


async def test_the_sql_function_enqueues_from_any_language(app, greet, conn):
    row = await conn.fetchrow(
        """select * from howdah.enqueue('greet', '{"user_id": 9}', queue => 'mail', key => 'sql', delay => 0.05)"""
    )
    again = await conn.fetchrow("select * from howdah.enqueue('greet', key => 'sql')")

    assert row["fresh"]
    assert (again["id"], again["fresh"]) == (row["id"], False)
    async with node(app):
        assert (await ended(conn, row["id"]))["result"] == b'"en:9"'
    for bad in ("'', '{}'", "'k', '{}', ''", "'k', '{}', 'q', 101", "'k', max_attempts => 0", "'k', timeout => 0"):
        with pytest.raises(asyncpg.InvalidParameterValueError):
            await conn.execute(f"select howdah.enqueue({bad})")


async def test_a_payload_that_no_longer_fits_the_task_fails_at_once(app, greet, conn):
    id = await conn.fetchval("""select id from howdah.enqueue('greet', '{"user": "seven"}', 'mail')""")
    await drain(app)

    row = await job(conn, id)
    assert row["state"] == "failed"
    assert "unknown argument" in row["error"] or "missing argument" in row["error"]
    assert row["error"].startswith(Poison.__name__)


def test_tasks_are_checked_when_they_are_made(app):
    with pytest.raises(ConfigError, match="name every parameter"):

        @app.task
        async def starred(*args: int) -> None: ...

    with pytest.raises(ConfigError, match="priority"):

        @app.task(priority=1000)
        async def loud() -> None: ...

    @app.task(name="twice")
    async def one() -> None: ...

    with pytest.raises(ConfigError, match="two tasks are named 'twice'"):

        @app.task(name="twice")
        async def two() -> None: ...


def test_without_a_database_the_error_says_what_to_do(monkeypatch):
    for name in ("HOWDAH_DSN", "DATABASE_URL", "PGHOST", "PGDATABASE", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="HOWDAH_DSN"):
        _ = Howdah().database
