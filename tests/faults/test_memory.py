"""Memory: who takes too much is killed and nobody else; who works for long takes no more than before."""

from __future__ import annotations

import asyncio
import json
import signal

import psutil
import psycopg
import pytest

from howdah.postgres.database import Database
from kit.cgroup import memory_group
from kit.command import Command, Jobs, eventually
from kit.memory_app import app, keep, mixed

pytestmark = pytest.mark.stories

WORKER = ("worker", "-a", "kit.memory_app:app", "-c", "4", "--lease", "10s", "--heartbeat", "1s")
KILLED = "killed by SIGKILL, maybe out of memory"
MOST = 12.0
"""Megabytes a node may have grown by after 40,000 further jobs: 300 bytes each, less than a job has."""


@pytest.fixture
def jobs(direct: Database):
    jobs = Jobs(direct.dsn)
    yield jobs
    jobs.close()


def enqueue(database: Database, kind: str, **args: object) -> int:
    with psycopg.connect(database.dsn, autocommit=True) as conn:
        made = conn.execute("select id from howdah.enqueue(%s, %s, max_attempts => 3)", (kind, json.dumps(args)))
        return int(made.fetchall()[0][0])


def test_a_handler_killed_for_its_memory_takes_nobody_with_it(database: Database, direct: Database, jobs: Jobs) -> None:
    with (
        memory_group("little", 96) as little,
        memory_group("plenty", 2048) as plenty,
        Command(*WORKER, dsn=database.dsn) as worker,
    ):
        greedy = [enqueue(direct, "take_apart", group=str(little), megabytes=400) for _ in range(2)]
        others = [enqueue(direct, "modest", n=n) for n in range(40)]
        control = enqueue(direct, "take_apart", group=str(plenty), megabytes=400)
        eventually(lambda: not {"queued", "running"} & set(jobs.all()), why=lambda: worker.output + str(jobs.all()))
        assert worker.process.poll() is None
        ended = {id: rest for id, *rest in jobs.all("id, state, attempt, resets, error")}
        history = jobs.query("select id, outcome, message from howdah.attempt order by id, attempt")

    for id in greedy:
        state, attempt, resets, error = ended[id]
        assert (state, attempt, resets) == ("failed", 3, 0), "the job failed; the node never went away"
        assert KILLED in error
    assert [ended[id][:3] for id in others] == [["done", 1, 0]] * 40, "other slots lost nothing"
    assert ended[control][:2] == ["done", 1], "it is the limit that kills"
    assert [(id, outcome) for id, outcome, _ in history] == [
        (id, outcome) for id in greedy for outcome in ("retry", "retry", "failed")
    ]
    assert all(KILLED in message for *_, message in history)


def test_in_the_process_of_the_node_it_would_take_the_node_along(
    database: Database, direct: Database, jobs: Jobs
) -> None:
    """The control."""
    with memory_group("control", 192) as group, Command(*WORKER, dsn=database.dsn) as worker:
        enqueue(direct, "take_here", group=str(group), megabytes=800)
        assert worker.ends() == -signal.SIGKILL
        assert jobs.all() == ["running"], "until its lease is over nobody knows"


def growth(dsn: str, jobs: Jobs, task: object, first: int, then: int) -> float:
    """Megabytes a node has more after ``then`` jobs than after ``first``."""

    def work(start: int, stop: int) -> float:
        for low in range(start, stop, 5000):
            high = min(stop, low + 5000)
            asyncio.run(_enqueue(dsn, [task.job(n) for n in range(low, high)]))  # type: ignore[attr-defined]
            eventually(lambda high=high: _done(jobs) >= high, 90, lambda: worker.output)
        assert worker.process.poll() is None, worker.output
        return psutil.Process(worker.process.pid).memory_info().rss / 2**20

    with Command(*WORKER, dsn=dsn) as worker:
        before = work(0, first)
        after = work(first, then)
    print(f"{before:.1f} MB after {first:,} jobs, {after:.1f} MB after {then:,}")
    return after - before


async def _enqueue(dsn: str, made: list[object]) -> None:
    app.connect_to(dsn)
    await app.enqueue_many(made)  # type: ignore[arg-type]
    await app.close()


def _done(jobs: Jobs) -> int:
    return int(jobs.query("select count(*) from howdah.done")[0][0])


@pytest.mark.timeout(400)
def test_a_node_takes_no_more_memory_after_fifty_thousand_jobs_than_after_ten(database: Database, jobs: Jobs) -> None:
    assert growth(database.dsn, jobs, mixed, 10_000, 50_000) < MOST
    states = dict(jobs.query("select state, count(*) from howdah.jobs group by 1"))
    assert states == {"done": 49_500, "failed": 500}
    assert jobs.query("select count(*) from howdah.attempt where outcome = 'retry'") == [(5000,)]


def test_a_leak_would_be_seen(database: Database, jobs: Jobs) -> None:
    """The control: four kilobytes a job."""
    assert growth(database.dsn, jobs, keep, 2000, 10_000) > MOST
