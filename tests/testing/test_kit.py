"""The test kit: draining, and asserting what was enqueued."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from howdah import ArgumentError, Backoff, Cancel, ConfigError, Howdah, HowdahError, Job, Poison, Snooze, current_job
from howdah.testing import (
    JobsFailed,
    assert_enqueued,
    assert_enqueued_sync,
    drain,
    drain_sync,
    refute_enqueued,
    refute_enqueued_sync,
)
from howdah.testing.assertions import _line
from kit.node import state

pytestmark = pytest.mark.anyio


@pytest.fixture
def greet(app):
    @app.task(queue="mail")
    async def greet(user_id: int, *, lang: str = "en") -> None: ...

    return greet


async def test_a_drain_runs_what_is_queued_and_what_that_enqueues(app):
    ran: list[str] = []

    @app.task
    async def last() -> None:
        ran.append("last")

    @app.task
    async def next() -> None:
        ran.append("next")
        await last.using(queue="a queue nobody knew").enqueue()

    @app.task
    def first() -> None:
        ran.append("first")
        next.using(queue="another").enqueue_sync()

    await first.enqueue()
    await last.using(delay=3600).enqueue()
    drained = await drain(app)

    assert ran == ["first", "next", "last"]
    assert (drained.ok, drained.errors) == (3, ())
    assert await drain(app) == type(drained)()


async def test_a_drain_runs_batches_and_counts_each_job(app):
    calls: list[int] = []

    @app.task(batch=10, within=60.0, max_attempts=1)
    async def add(n: list[int]) -> list[object]:
        calls.append(len(n))
        return [ValueError("bad") if each == 2 else each for each in n]

    @app.task(batch=10)
    async def take(jobs: list[Job]) -> None: ...

    await app.enqueue_many(add.job(n) for n in range(5))
    await take.enqueue(order=17)
    await assert_enqueued(app, add, 4)
    await assert_enqueued(app, take, order=17)
    drained = await drain(app, raise_failures=False)

    assert calls == [5]
    assert (drained.ok, drained.failed) == (5, 1)
    assert [(each.args, each.error) for each in drained.errors] == [({"n": 2}, "ValueError")]


async def test_a_drain_counts_how_attempts_ended(app):
    @app.task(retry=Backoff(first=0, jitter=0), max_attempts=2)
    async def ends(how: str) -> Snooze | Cancel | None:
        match how:
            case "snooze":
                return Snooze(60)
            case "cancel":
                return Cancel()
            case "poison":
                raise Poison("never")
            case "fail":
                raise RuntimeError("always")
        return None

    for how in ("ok", "ok", "snooze", "cancel", "poison", "fail"):
        await ends.enqueue(how)
    drained = await drain(app, raise_failures=False)

    assert (drained.ok, drained.snoozed, drained.cancelled) == (2, 1, 1)
    assert (drained.poison, drained.retry, drained.failed) == (1, 1, 1)
    assert sorted((each.error, each.attempt, each.outcome) for each in drained.errors) == [
        ("Poison", 1, "poison"),
        ("RuntimeError", 1, "retry"),
        ("RuntimeError", 2, "failed"),
    ]


async def test_a_job_that_raises_fails_the_test_with_its_traceback(app):
    @app.task(queue="mail")
    async def greet(user_id: int) -> None:
        raise LookupError(f"no user {user_id}")

    await greet.enqueue(17)
    with pytest.raises(AssertionError) as raised:
        await drain(app)

    text = str(raised.value)
    assert "1 job raised" in text
    assert "greet(user_id=17), queue mail, attempt 1 of 5, waits to be retried" in text
    assert 'raise LookupError(f"no user {user_id}")' in text
    assert "LookupError: no user 17" in text
    assert isinstance(raised.value, JobsFailed)
    assert raised.value.drained.retry == 1


async def test_scheduled_jobs_and_retries_run_without_waiting(app, conn):
    seen: list[tuple[str, int]] = []

    @app.task(max_attempts=4)
    async def flaky(name: str) -> None:
        seen.append((name, current_job().attempt))
        if current_job().attempt < 3:
            raise RuntimeError("not yet")

    await flaky.enqueue("now")
    later = await flaky.using(delay=86400).enqueue("later")
    drained = await drain(app, scheduled=True)

    assert sorted(seen) == [(name, attempt) for name in ("later", "now") for attempt in (1, 2, 3)]
    assert (drained.ok, drained.retry, len(drained.errors)) == (2, 4, 4), "what succeeds in the end is no failure"
    assert await state(conn, later.id) == "done"


async def test_a_job_that_ends_failed_fails_the_test_although_it_was_retried(app):
    @app.task(max_attempts=3)
    async def never() -> None:
        raise RuntimeError("no")

    await never.enqueue()
    with pytest.raises(JobsFailed, match="attempt 3 of 3, failed") as raised:
        await drain(app, scheduled=True)
    assert [each.attempt for each in raised.value.failures] == [3]


async def test_a_job_that_never_ends_is_given_up(app, monkeypatch):
    monkeypatch.setattr("howdah.testing.drained.ROUNDS", 3)

    @app.task
    async def tired() -> Snooze:
        return Snooze(60)

    await tired.enqueue()
    with pytest.raises(HowdahError, match="3 rounds"):
        await drain(app, scheduled=True)


async def test_only_the_named_queues_are_drained(app, greet, conn):
    mail, other = await greet.enqueue(1), await greet.using(queue="other").enqueue(2)
    paused = await greet.using(queue="paused", delay=60).enqueue(3)
    await app.admin.pause("paused")

    assert (await drain(app, queues=["mail", "paused"], scheduled=True)).ok == 1
    assert [await state(conn, each.id) for each in (mail, other, paused)] == ["done", "queued", "queued"]
    assert (await drain(app, queues="other")).ok == 1


async def test_drains_side_by_side_tell_their_own_story(app, database):
    other = Howdah(database.dsn)
    for each in (app, other):

        @each.task(name=f"work {id(each)}")
        async def work() -> None:
            await asyncio.sleep(0.01)

        await each.enqueue_many(work.job() for _ in range(10 if each is app else 20))

    drained = await asyncio.gather(drain(app), drain(other))
    assert [each.ok for each in drained] == [10, 20]
    await other.close()


def test_synchronous_tests_can_drain_and_assert(app):
    ran: list[int] = []

    @app.task
    def note(n: int) -> None:
        ran.append(n)
        if n:
            note.enqueue_sync(n - 1)

    note.enqueue_sync(3)
    assert len(assert_enqueued_sync(app, note, 3)) == 1
    assert drain_sync(app).ok == 4
    assert drain_sync(app, queues=["default"], slots=1, scheduled=True, raise_failures=False).ok == 0
    assert ran == [3, 2, 1, 0]
    refute_enqueued_sync(app, note)
    with pytest.raises(AssertionError, match="found 1"):
        refute_enqueued_sync(app, note, 3, finished=True)


async def test_the_synchronous_calls_refuse_to_hold_up_a_loop(app, greet):
    for sync in (
        drain_sync,
        lambda app: assert_enqueued_sync(app, greet),
        lambda app: refute_enqueued_sync(app, greet),
    ):
        with pytest.raises(ConfigError, match="await"):
            sync(app)


async def test_an_enqueued_job_is_found_by_what_is_said_of_it(app, greet):
    at = datetime.now(UTC) + timedelta(hours=1)
    made = await greet.enqueue(7)
    later = await greet.using(run_at=at, key="k", queue="slow").enqueue(7, lang="de")

    assert [job.id for job in await assert_enqueued(app, greet)] == [made.id, later.id]
    assert [job.id for job in await assert_enqueued(app, "greet", 7, count=2)] == [made.id, later.id]
    for expected in ({"lang": "de"}, {"key": "k"}, {"queue": "slow"}, {"run_at": at}, {"run_at": timedelta(hours=1)}):
        [job] = await assert_enqueued(app, greet, 7, **expected)
        assert (job.id, job.args) == (later.id, {"user_id": 7, "lang": "de"})
    [job] = await assert_enqueued(app, greet, 7, lang="en")
    assert job.id == made.id, "a default counts as sent"
    for expected in ({"lang": "fr"}, {"key": "l"}, {"queue": "default"}, {"run_at": at + timedelta(minutes=1)}):
        await refute_enqueued(app, greet, **expected)
    await assert_enqueued(app, greet, 8, count=0)


async def test_jobs_of_kinds_that_live_elsewhere_are_found_by_name(app, greet, conn):
    await conn.execute("""select howdah.enqueue('billing:charge', '{"order": 17}')""")

    await assert_enqueued(app, "billing:charge", order=17)
    with pytest.raises(ArgumentError, match="by name"):
        await assert_enqueued(app, "billing:charge", 17)


async def test_finished_jobs_count_only_when_asked_for(app, greet):
    await greet.enqueue(7)
    await drain(app)

    await refute_enqueued(app, greet, 7)
    with pytest.raises(AssertionError, match="pass finished=True"):
        await assert_enqueued(app, greet, 7)
    [job] = await assert_enqueued(app, greet, 7, finished=True)
    assert job.state == "done"


async def test_a_failed_assertion_shows_what_was_enqueued_instead(app, greet):
    with pytest.raises(AssertionError, match="no job is enqueued at all"):
        await assert_enqueued(app, greet)

    @app.task
    async def charge(order_id: int) -> None: ...

    await charge.using(delay=600, key="order 17").enqueue(17)
    await greet.enqueue(7)
    with pytest.raises(AssertionError) as raised:
        await assert_enqueued(app, greet, 8, queue="mail")

    assert str(raised.value).splitlines() == [
        "expected at least 1 of greet(user_id=8) with queue mail, found 0",
        "enqueued instead:",
        "  job 2: greet(user_id=7), queue mail, queued",
        "  job 1: charge(order_id=17), queue default, due in 600 s, key 'order 17'",
    ]
    with pytest.raises(AssertionError, match=r"expected 2 of greet\(user_id=7\), found 1\nfound:\n  job 2"):
        await assert_enqueued(app, greet, 7, count=2)
    with pytest.raises(AssertionError, match="expected 0 of greet"):
        await refute_enqueued(app, greet)


async def test_a_misspelt_name_is_an_error_rather_than_a_job_never_found(app, greet):
    with pytest.raises(ConfigError, match="did you mean 'greet'"):
        await refute_enqueued(app, "greeet")
    for check in (assert_enqueued, refute_enqueued):
        with pytest.raises(ArgumentError, match="no parameter 'usr_id'; it takes user_id, lang"):
            await check(app, greet, usr_id=7)
        with pytest.raises(ArgumentError, match="1 positional"):
            await check(app, greet, 7, "de")
        with pytest.raises(ArgumentError, match="time zone"):
            await check(app, greet, run_at=datetime(2030, 1, 1))


async def test_a_long_job_is_cut_in_messages(app):
    @app.task
    async def long(text: str) -> None: ...

    await long.enqueue("x" * 5000)
    [job] = await assert_enqueued(app, long)
    assert len(_line(job)) < 400
