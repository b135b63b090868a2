"""A worker outlives handlers that harm its event loop, and a stop ends although the database is silent."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.postgres.embedded import server as embedded
from kit.command import Command, Jobs, children, eventually

WORKER = ("worker", "-a", "kit.hostile_app:app")
VANDALS = ("leaves_exit", "leaves_interrupt", "stops_loop", "cancels_all")


def test_a_worker_outlives_what_handlers_do_to_its_loop(direct: Database, database: Database) -> None:
    jobs = Jobs(direct.dsn)
    try:
        with Command(*WORKER, dsn=database.dsn) as worker:
            jobs.run("select howdah.enqueue('in_time', '{}', max_attempts => 1)")
            worker.says("in_time begins 1")
            for number, kind in enumerate(VANDALS, 1):  # one after the other: of two exits at once the loop raises one
                jobs.run(f"select howdah.enqueue('{kind}', '{{}}')")
                eventually(lambda: jobs.all().count("done") >= number or worker.process.poll() is not None)  # noqa: B023
            jobs.run("select howdah.enqueue('too_slow', '{}', timeout => 0.5, max_attempts => 1)")
            eventually(
                lambda: jobs.all() == ["done"] * 5 + ["failed"] or worker.process.poll() is not None,
                why=lambda: f"{jobs.all('kind, state, error')}\n{worker.output}",
            )
            assert worker.process.poll() is None, worker.output
            assert jobs.all("attempt") == [1] * 6
            worker.send(signal.SIGTERM)
            assert worker.ends() == 0
        assert "raised SystemExit(3); the node continues" in worker.last_output
        assert "raised KeyboardInterrupt(); the node continues" in worker.last_output
        assert "a handler stopped the event loop; the node continues" in worker.last_output
        assert "tried to cancel tasks that are not its own; it did not" in worker.last_output
    finally:
        jobs.close()


@contextmanager
def frozen(server: embedded.Server) -> Iterator[None]:
    """All processes of a server stand still."""
    [pid_file] = Path(server.folder).rglob("postmaster.pid")
    postmaster = int(pid_file.read_text().split()[0])
    os.kill(postmaster, signal.SIGSTOP)  # first: it starts no more
    family = [*children(postmaster), postmaster]
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in family:
            os.kill(pid, signal.SIGCONT)


def test_a_stop_ends_although_the_database_is_silent() -> None:
    with embedded.start() as server:
        asyncio.run(migrate.migrate(Database(server.dsn)))
        jobs = Jobs(server.dsn)
        jobs.enqueue("nap", 1)
        jobs.enqueue("nap", 600)
        with Command("worker", "-a", "kit.command_app:app", "--grace", "2s", dsn=server.dsn) as worker:
            worker.begins("nap", "nap")
            with frozen(server):
                began = time.monotonic()
                worker.send(signal.SIGTERM)
                worker.ends(50)
                took = time.monotonic() - began
        jobs.close()
    assert took < 2 + 20, worker.last_output  # it took a minute and more
    assert "leases" in worker.last_output
