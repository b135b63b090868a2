"""A real node is scraped over HTTP, and every outcome is there."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from prometheus_client import REGISTRY, Counter, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from howdah import Backoff, Cancel, Howdah, Poison, Snooze, __version__
from howdah.job import Job
from howdah.observe.prometheus import Metrics
from howdah.observe.sampler import QueueDepth
from howdah.observe.series import BOUNDS
from howdah.outcome import Ack, Outcome
from howdah.postgres.database import Database
from kit.node import drain, eventually
from observe.scraping import observed_node, samples, scrape, status, value

pytestmark = pytest.mark.anyio


async def test_a_scrape_of_a_worker_shows_every_outcome(app: Howdah, database: Database) -> None:
    @app.task(name="ends", queue="mail", max_attempts=2, retry=Backoff(first=0.01, jitter=0))
    async def ends(how: str) -> object:
        match how:
            case "raise":
                raise ValueError("no")
            case "poison":
                raise Poison("never")
            case "cancel":
                return Cancel("no longer wanted")
            case "snooze":
                return Snooze(3600)
        return None

    for how in ("well", "well", "raise", "poison", "cancel", "snooze"):
        await ends.enqueue(how)

    async with observed_node(app, database, slots=4) as (_, observed):

        async def all_counted() -> Any:
            found = await scrape(observed)
            counted = {
                outcome: value(found, "worker_jobs_processed_total", kind="ends", outcome=outcome)
                for outcome in ("ok", "retry", "failed", "poison", "cancelled", "snoozed", "lost")
            }
            expected = {"ok": 2, "retry": 1, "failed": 1, "poison": 1, "cancelled": 1, "snoozed": 1, "lost": 0}
            return found if counted == expected else None

        found = await eventually(all_counted)

    assert value(found, "worker_job_duration_seconds_count", kind="ends") == 7
    assert value(found, "worker_job_wait_seconds_count", queue="mail") == 6
    assert value(found, "worker_slots", state="free") == 4
    assert value(found, "worker_jobs_processed_total", kind="ends", outcome="released") is None


async def test_running_jobs_and_queues_are_shown(app: Howdah, database: Database) -> None:
    go_on = asyncio.Event()

    @app.task(name="waits")
    async def waits() -> None:
        await go_on.wait()

    await app.enqueue_many(waits.job() for _ in range(5))
    await waits.using(delay=3600).enqueue()
    async with observed_node(app, database, slots=2) as (_, observed):

        async def two_run() -> Any:
            return value(await scrape(observed), "worker_in_flight", kind="waits") == 2

        await eventually(two_run)
        await observed.depth.count()
        found = await scrape(observed)
        go_on.set()

    assert value(found, "worker_slots", state="busy") == 2
    assert value(found, "worker_slots", state="free") == 0
    assert value(found, "queue_jobs", queue="default", state="scheduled") == 1
    assert value(found, "queue_jobs", queue="default", state="running") == 2
    assert value(found, "queue_jobs", queue="default", state="queued") == 3
    assert value(found, "queue_oldest_seconds", queue="default") > 0
    assert value(found, "event_loop_blocked_seconds") == 0


async def test_a_batch_counts_each_job_and_one_slot(app: Howdah, database: Database) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    @app.task(batch=10)
    async def many(n: list[int]) -> None:
        inside.set()
        await go_on.wait()

    await app.enqueue_many(many.job(n) for n in range(5))
    async with observed_node(app, database, slots=5) as (_, observed):
        await asyncio.wait_for(inside.wait(), 30)
        during = await scrape(observed)
        go_on.set()

        async def done() -> Any:
            return value(await scrape(observed), "worker_jobs_processed_total", kind="many", outcome="ok") == 5

        await eventually(done)

    assert value(during, "worker_in_flight", kind="many") == 5
    assert value(during, "worker_slots", state="busy") == 1
    assert value(during, "worker_slots", state="free") == 4


async def test_jobs_done_or_retried_under_a_live_lease_no_longer_count_as_running(
    app: Howdah, database: Database
) -> None:
    go_on = asyncio.Event()

    @app.task(name="one_waits", max_attempts=2, retry=Backoff(first=3600))
    async def one_waits(how: str) -> None:
        if how == "fail":
            raise ValueError("no")
        if how == "wait":
            await go_on.wait()

    await app.enqueue_many(one_waits.job(how) for how in ("wait", "end", "fail", "end"))
    async with observed_node(app, database, slots=4) as (_, observed):

        async def one_runs() -> Any:
            [queue] = await observed.depth.count()
            return queue if queue.queued == 0 and queue.running == 1 else None

        queue = await eventually(one_runs)
        go_on.set()

    assert queue.scheduled == 1
    assert queue.oldest is None


async def test_the_oldest_is_the_one_due_longest_also_when_nobody_has_looked_yet(
    app: Howdah, database: Database, conn: Any
) -> None:
    @app.task(name="never", queue="alone")
    async def never() -> None: ...

    depth = QueueDepth(database)
    await never.using(delay=0.05).enqueue()
    await asyncio.sleep(0.1)
    [due] = await depth.count()
    await never.enqueue()
    await conn.execute("update howdah.job set enqueued_at = now() - interval '1 hour' where run_at is null")
    [queue] = await depth.count()
    await depth._session.close()

    assert (due.queued, due.scheduled) == (1, 0)
    assert due.oldest is not None
    assert 0.04 < due.oldest < 30
    assert queue.oldest == pytest.approx(3600, abs=30)


async def test_a_retry_is_as_old_as_its_last_attempt(app: Howdah, database: Database, conn: Any) -> None:
    @app.task(name="fails", max_attempts=3, retry=Backoff(first=60))
    async def fails() -> None:
        raise ValueError("no")

    await fails.enqueue()
    await conn.execute("update howdah.job set enqueued_at = now() - interval '1 day'")
    depth = QueueDepth(database)
    [before] = await depth.count()
    await drain(app)  # the retry is due only after this
    await conn.execute(
        "insert into howdah.ready (lo, hi, priority, attempt, queue, kind) "
        "select id, id + 1, priority, attempt, queue, kind from howdah.later"
    )
    await conn.execute("delete from howdah.later")
    [after] = await depth.count()
    await depth._session.close()

    assert before.oldest == pytest.approx(86400, abs=60)
    assert after.queued == 1
    assert after.oldest == pytest.approx(0, abs=60)


async def test_enqueues_are_counted_where_they_are_made(app: Howdah, database: Database) -> None:
    @app.task(name="nothing")
    async def nothing() -> None: ...

    metrics = Metrics()
    metrics.start()
    await nothing.enqueue()
    await app.enqueue_many(nothing.job() for _ in range(10))
    metrics.stop()
    await nothing.enqueue()

    assert value(samples(generate_latest(metrics).decode()), "jobs_enqueued_total") == 11
    await drain(app)


async def test_an_application_finds_its_own_metrics_in_the_same_scrape(app: Howdah, database: Database) -> None:
    @app.task(name="nothing")
    async def nothing() -> None: ...

    mine = Counter("howdah_test_mails", "Mails sent.")
    try:
        async with observed_node(app, database) as (_, observed):
            mine.inc(3)
            found = await scrape(observed)
    finally:
        REGISTRY.unregister(mine)

    assert value(found, "test_mails_total") == 3
    assert value(found, "build_info", version=__version__) == 1


def test_outages_losses_and_reconnects_are_counted() -> None:
    metrics = Metrics(status())
    jobs = [Job(id, "mail", "send", 1, 5, token, b"{}") for id, token in ((1, 10), (2, 10), (3, 11))]
    for name, facts in (
        ("loop.fail", {"loop": "heartbeat", "error": OSError()}),
        ("loop.fail", {"loop": "claim", "error": OSError()}),
        ("loop.heal", {"loop": "heartbeat", "seconds": 9.0, "failures": 4}),
        ("pg.connect", {"role": "ack", "again": False}),
        ("pg.connect", {"role": "ack", "again": True}),
        ("job.lost", {"jobs": jobs, "reason": "frozen"}),
        ("job.lost", {"jobs": jobs[2:], "reason": "the rest of the same lease"}),
        ("job.reset", {"leases": 2, "requeued": 5, "ended": 0}),
        ("listen.deaf", {"reason": "a pooler"}),
        ("unknown.event", {}),
    ):
        metrics.on_event(name, facts)
    found = samples(generate_latest(metrics).decode())

    assert value(found, "heartbeat_failures_total") == 4
    assert value(found, "db_reconnects_total", role="ack") == 1
    assert value(found, "leases_lost_total") == 2
    assert value(found, "worker_jobs_processed_total", kind="send", outcome="lost") == 4
    assert value(found, "leases_reset_total") == 2
    assert value(found, "listen_deaf") == 1
    metrics.on_event("listen.heard", {})
    assert value(samples(generate_latest(metrics).decode()), "listen_deaf") == 0


def test_any_number_of_kinds_stays_a_bounded_number_of_series() -> None:
    metrics = Metrics(status(running=lambda: ["yet another kind"]))
    metrics.on_event("job.ack", {"acks": [_ack(kind=f"kind {n}") for n in range(2000)]})
    metrics.on_event("job.claim", {"jobs": [_ack(queue=f"queue {n}").job for n in range(2000)]})
    found = samples(generate_latest(metrics).decode())

    kinds = {dict(labels)["kind"] for name, labels in found if name == "howdah_worker_jobs_processed_total"}
    queues = {dict(labels)["queue"] for name, labels in found if name == "howdah_worker_job_wait_seconds_count"}
    assert (len(kinds), len(queues)) == (501, 501)
    assert value(found, "worker_jobs_processed_total", kind="other", outcome="ok") == 1500
    assert value(found, "worker_in_flight", kind="other") == 1


def test_durations_fall_into_their_buckets_and_the_sum_is_exact() -> None:
    metrics = Metrics()
    took = [1, 5_000, 5_001, 1_000_000, 10_000_000_000]
    metrics.on_event("job.ack", {"acks": [_ack(took=each) for each in took]})
    metrics.on_event("job.ack", {"acks": [_ack(took=10**9, outcome=Outcome.RELEASED)]})
    found = samples(generate_latest(metrics).decode())

    buckets = {
        float(dict(labels)["le"]): count
        for (name, labels), count in found.items()
        if name == "howdah_worker_job_duration_seconds_bucket"
    }
    assert sorted(buckets) == [*BOUNDS, float("inf")]
    assert all(count == sum(each / 1e6 <= bound for each in took) for bound, count in buckets.items())
    assert value(found, "worker_job_duration_seconds_sum", kind="send") == pytest.approx(sum(took) / 1e6)


def test_the_openmetrics_format_is_served_too() -> None:
    metrics = Metrics(status())
    metrics.on_event("job.ack", {"acks": [_ack()]})

    text = generate_openmetrics(metrics).decode()
    assert 'howdah_worker_jobs_processed_total{kind="send",outcome="ok"} 1.0' in text
    assert text.endswith("# EOF\n")


def test_counting_a_batch_costs_next_to_nothing() -> None:
    metrics = Metrics()
    acks = [_ack(took=n) for n in range(2000)]
    best = min(_seconds(metrics, acks) for _ in range(20))

    assert best / len(acks) < 3e-6  # 0.12 µs on a quiet machine


def _seconds(metrics: Metrics, acks: list[Ack]) -> float:
    began = time.perf_counter()
    metrics.on_event("job.ack", {"acks": acks})
    return time.perf_counter() - began


def _ack(kind: str = "send", queue: str = "mail", took: int = 10, outcome: Outcome = Outcome.OK) -> Ack:
    return Ack(Job(1, queue, kind, 1, 5, 1, b"{}", waited=0.1), outcome, took)
