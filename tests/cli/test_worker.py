"""`howdah worker` as a real process with real signals."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.postgres.embedded import server as embedded
from kit.command import Command, Jobs, eventually
from kit.serve_process import free_port
from kit.signals import STOPS, pass_on_none_ignored

WORKER = ("worker", "-a", "kit.command_app:app")


@pytest.fixture
def jobs(direct: Database) -> Iterator[Jobs]:
    jobs = Jobs(direct.dsn)
    yield jobs
    jobs.close()


def test_the_first_signal_lets_a_running_job_finish(database: Database, jobs: Jobs) -> None:
    jobs.enqueue("nap", 4)

    with Command(*WORKER, dsn=database.dsn) as worker:
        worker.begins("nap")
        worker.send(signal.SIGTERM)
        worker.says("draining: 1 job running, up to 25 s; again to release them now")
        jobs.enqueue("nap")

        assert worker.ends() == 0
        assert jobs.all("state, attempt") == [("done", 1), ("queued", 0)]


@pytest.mark.parametrize("kind", ["nap", "block", "refuse"])
def test_the_second_signal_hands_back_at_once_and_charges_no_attempt(database: Database, jobs: Jobs, kind: str) -> None:
    jobs.enqueue(kind, 60)

    with Command(*WORKER, dsn=database.dsn) as worker:
        worker.begins(kind)
        worker.send(signal.SIGINT)
        worker.says("draining")
        began = time.monotonic()
        worker.send(signal.SIGINT)

        assert worker.ends() == 0
        assert time.monotonic() - began < 20, "it waited for the grace of 25 s"
        assert jobs.all("state, attempt") == [("queued", 0)]


def test_what_does_not_finish_within_the_grace_is_handed_back(database: Database, jobs: Jobs) -> None:
    jobs.enqueue("nap", 60)

    with Command(*WORKER, "--grace", "500ms", dsn=database.dsn) as worker:
        worker.begins("nap")
        worker.send(signal.SIGTERM)

        assert worker.ends() == 0
        assert jobs.all("state, attempt") == [("queued", 0)]


def test_a_database_that_is_gone_does_not_keep_it_after_the_second_signal() -> None:
    with embedded.start() as server:
        asyncio.run(migrate.migrate(Database(server.dsn)))
        jobs = Jobs(server.dsn)
        jobs.enqueue("nap", 60)
        worker = Command(*WORKER, dsn=server.dsn)
        worker.begins("nap")
        jobs.close()

    with worker:
        worker.send(signal.SIGTERM)
        worker.says("draining")
        worker.send(signal.SIGTERM)

        assert worker.ends(20) == 1, "it waited for the grace of 25 s"
        assert "the jobs run again when their leases expire" in worker.output


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTTIN])
def test_a_dump_shows_the_running_jobs_and_where_they_stand(
    database: Database, jobs: Jobs, number: signal.Signals
) -> None:
    nap, block = jobs.enqueue("nap", 60), jobs.enqueue("block", 60)

    with Command(*WORKER, dsn=database.dsn) as worker:
        worker.begins("nap", "block")
        worker.send(number)

        worker.says(f"job {block} (block), most recent call last")
        eventually(lambda: "await asyncio.sleep(seconds)" in worker.output, why=lambda: worker.output)
        rows = re.findall(r"^ +(\d+) +(\d+) +[\d.]+  (\w+)$", worker.output, re.MULTILINE)
        assert rows == [(str(nap), "1", "nap"), (str(block), "1", "block")]
        assert "command_app.py" in worker.output
        assert worker.process.poll() is None


SLOW = """
import time
from pathlib import Path
from howdah import Howdah
print("imports", flush=True)
while not Path("go").exists():
    time.sleep(0.02)
app = Howdah()
@app.task
async def work() -> None: ...
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_worker_that_still_imports_can_be_asked_and_stopped(
    database: Database, tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "own.py").write_text(SLOW)

    with Command("worker", "-a", "own:app", dsn=database.dsn, folder=tmp_path) as worker:
        worker.says("imports")
        worker.send(signal.SIGUSR1)
        worker.says("own.py")
        worker.send(number)
        assert worker.ends() == 0


def test_what_was_asked_while_it_imported_does_not_disturb_its_start(database: Database, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(SLOW)

    with Command("worker", "-a", "own:app", dsn=database.dsn, folder=tmp_path) as worker:
        worker.says("imports")
        worker.send(signal.SIGTTIN)
        worker.says("own.py")
        (tmp_path / "go").touch()
        worker.says("starts: ")
        worker.send(signal.SIGTERM)
        assert worker.ends() == 0


def test_a_hangup_drains_and_a_second_one_hands_back(database: Database, jobs: Jobs) -> None:
    jobs.enqueue("nap", 60)

    with Command(*WORKER, dsn=database.dsn) as worker:
        worker.begins("nap")
        worker.send(signal.SIGHUP)
        worker.says("draining: 1 job running")
        worker.send(signal.SIGHUP)

        assert worker.ends() == 0
        assert jobs.all("state, attempt") == [("queued", 0)]


def test_a_hangup_is_ignored_under_nohup(database: Database, jobs: Jobs) -> None:
    jobs.enqueue("nap", 60)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a child inherits that, as from nohup
    try:
        worker = Command(*WORKER, dsn=database.dsn)
    finally:
        signal.signal(signal.SIGHUP, before)

    with worker:
        worker.begins("nap")
        worker.send(signal.SIGHUP)
        worker.send(signal.SIGUSR1)  # signals come in the order of their numbers, so this one is answered later
        worker.says("1 running:")
        assert "draining" not in worker.output


@pytest.mark.parametrize("number", STOPS)
def test_signals_end_what_tests_start_even_if_the_tests_ignore_them(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        pass_on_none_ignored()
        os.kill(os.getpid(), number)
        with subprocess.Popen(["sleep", "60"]) as child:
            child.send_signal(number)
            assert child.wait(30) == -number
    finally:
        signal.signal(number, before)


def test_a_dump_shows_what_blocks_the_event_loop(database: Database, jobs: Jobs) -> None:
    jobs.enqueue("hog", 60)

    with Command(*WORKER, dsn=database.dsn) as worker:
        worker.begins("hog")
        worker.send(signal.SIGUSR1)

        worker.says("in hog")


def test_dumps_beside_busy_threads_do_no_harm(database: Database, jobs: Jobs) -> None:
    jobs.enqueue("spin", 60)

    with Command(*WORKER, dsn=database.dsn) as worker:
        worker.begins("spin")
        for _ in range(100):
            worker.send(signal.SIGUSR1)
            time.sleep(0.02)

        eventually(lambda: "in spin" in worker.output, why=lambda: worker.output)
        assert worker.process.poll() is None
        worker.send(signal.SIGTERM)
        worker.send(signal.SIGTERM)


def test_drain_ends_when_nothing_is_left(database: Database, jobs: Jobs) -> None:
    for _ in range(200):
        jobs.enqueue("nap")
    jobs.run("select howdah.enqueue('nap', '{\"seconds\": 0}', delay => 3600)")
    jobs.run("select howdah.enqueue('unknown kind')")

    with Command(*WORKER, "--drain", "-c", "10", dsn=database.dsn) as worker:
        assert worker.ends() == 0

    assert sorted(set(jobs.all())) == ["done", "queued"]
    assert jobs.all().count("done") == 200


def test_only_the_named_queues_are_served_within_their_limits(database: Database, jobs: Jobs) -> None:
    for queue in ("mail", "mail", "mail", "other"):
        jobs.run(f"select howdah.enqueue('nap', '{{\"seconds\": 60}}', queue => '{queue}')")

    with Command("worker", dsn=database.dsn, HOWDAH_QUEUES="mail:2", HOWDAH_APP="kit.command_app:app") as worker:
        worker.begins("nap", "nap")
        time.sleep(0.5)
        assert jobs.all() == ["running", "running", "queued", "queued"]
        worker.send(signal.SIGTERM)
        worker.says("draining: 2 jobs running")


def test_without_a_schema_it_ends_with_code_4(server: Any, jobs: Jobs, database: Database) -> None:
    with Command(*WORKER, "--schema", "elsewhere", dsn=database.dsn) as worker:
        assert worker.ends() == 4
        assert "run `howdah migrate`" in worker.output


def test_a_newer_schema_ends_it_with_code_4_before_anything_is_claimed(database: Database, jobs: Jobs) -> None:
    jobs.run("insert into howdah.migration (number, name, checksum) values (9999, 'future', '')")
    jobs.enqueue("nap")

    with Command(*WORKER, dsn=database.dsn) as worker:
        assert worker.ends() == 4
        assert "upgrade howdah" in worker.output

    assert jobs.all("state, attempt") == [("queued", 0)]


def test_without_a_database_it_ends_with_code_3() -> None:
    began = time.monotonic()

    with Command(*WORKER, "--wait", "1", dsn=f"postgresql://me:secret@127.0.0.1:{free_port()}/app") as worker:
        assert worker.ends() == 3
        assert time.monotonic() - began > 1
        assert "Connection refused" in worker.output
        assert "secret" not in worker.output


def test_a_signal_while_it_waits_for_its_database_ends_it_with_code_0() -> None:
    with Command(*WORKER, dsn=f"postgresql://me@127.0.0.1:{free_port()}/app") as worker:
        worker.says("connect failed")
        worker.send(signal.SIGTERM)

        assert worker.ends() == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("worker", "-a", "kit.command_app:nothing"), "did you mean kit.command_app:app?"),
        ((*WORKER, "--lease", "1s"), "lease must be at least two heartbeats"),
        ((*WORKER, "-q", ","), "no queue named"),
        ((*WORKER, "--metrics", "here"), "metrics must be HOST:PORT"),
        ((*WORKER, "--processes", "0"), "processes"),
        ((*WORKER, "--rebalance", "0"), "rebalance must be above zero"),
        ((*WORKER, "--dispatch", "0s"), "dispatch must be above zero"),
        ((*WORKER, "--leader", "me"), "Invalid value for '--leader'"),
    ],
)
def test_what_cannot_work_ends_with_code_2(database: Database, words: tuple[str, ...], message: str) -> None:
    with Command(*words, dsn=database.dsn) as worker:
        assert worker.ends() == 2
        assert message in worker.output


def test_metrics_and_health_are_served(database: Database, jobs: Jobs) -> None:
    port = free_port()

    with Command(*WORKER, "--metrics", f"127.0.0.1:{port}", dsn=database.dsn) as worker:
        eventually(lambda: ask(port, "/readyz") == "ok\n", why=lambda: worker.output)
        jobs.enqueue("nap")
        jobs.become("done")

        done = 'howdah_worker_jobs_processed_total{kind="nap",outcome="ok"} 1.0'
        eventually(lambda: done in (ask(port, "/metrics") or ""), why=lambda: str(ask(port, "/metrics")))


def test_without_wake_ups_it_polls(database: Database, jobs: Jobs) -> None:
    with Command(*WORKER, "--poll-only", "--poll", "100ms", dsn=database.dsn) as worker:
        worker.says("starts")
        jobs.enqueue("nap")
        jobs.become("done")


def test_changed_code_is_loaded(database: Database, jobs: Jobs, tmp_path: Path) -> None:
    source = tmp_path / "own.py"
    program = "from howdah import Howdah\napp = Howdah()\n@app.task(name={!r})\nasync def run(seconds: float): ...\n"
    source.write_text(program.format("first"))
    jobs.enqueue("second")

    with Command("worker", "-a", "own:app", "--reload", dsn=database.dsn, folder=tmp_path) as worker:
        worker.says("starts")
        source.write_text("this is no Python")
        worker.says("waiting for a change")
        source.write_text(program.format("second"))
        jobs.become("done")
        worker.send(signal.SIGTERM)

        assert worker.ends() == 0


def ask(port: int, path: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return str(answer.read().decode())
    except OSError:
        return None
