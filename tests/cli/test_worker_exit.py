"""The exit of `howdah worker`: functions of atexit run, whatever threads there are, and it never takes for ever."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from howdah.postgres.database import Database
from kit.command import Command, Jobs

WORKER = ("worker", "-a", "kit.exit_app:app")


@pytest.fixture
def jobs(direct: Database) -> Iterator[Jobs]:
    jobs = Jobs(direct.dsn)
    yield jobs
    jobs.close()


def test_an_idle_thread_of_another_library_is_no_handler_that_did_not_end(database: Database, jobs: Jobs) -> None:
    jobs.enqueue("uses_a_pool")

    with Command(*WORKER, "--drain", dsn=database.dsn) as worker:
        assert worker.ends() == 0
        assert "flushed at exit" in worker.output
        assert "did not end" not in worker.output


def test_a_thread_that_never_ends_delays_the_exit_but_not_for_ever(database: Database, jobs: Jobs) -> None:
    jobs.enqueue("leaves_a_thread")

    with Command(*WORKER, "--drain", dsn=database.dsn) as worker:
        assert worker.ends() == 0
        assert "flushed at exit" in worker.output
        assert "threads still run 15 s after the end of the node" in worker.output


def test_a_handler_that_cannot_be_cancelled_does_not_keep_others_from_flushing(database: Database, jobs: Jobs) -> None:
    jobs.enqueue("blocks", 3600)

    with Command(*WORKER, "--grace", "100ms", dsn=database.dsn) as worker:
        worker.begins("blocks")
        began = time.monotonic()
        worker.send(signal.SIGTERM)

        assert worker.ends() == 0
        assert time.monotonic() - began < 20
        assert "1 handlers did not end when cancelled" in worker.output
        assert "flushed at exit" in worker.output
