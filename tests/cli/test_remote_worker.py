"""`howdah worker --server` as a real process, without a database: signals, and what goes wrong in between."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from howdah.postgres.database import Database
from kit.command import eventually
from kit.serve_process import ControlPlaneProcesses, ask, free_port, page_text, workers


@pytest.fixture
def processes(database: Database, direct: Database, tmp_path: Path) -> Iterator[ControlPlaneProcesses]:
    with ExitStack() as stack:
        yield ControlPlaneProcesses(database, direct, stack, tmp_path / "notes")


def test_it_works_lets_a_running_job_finish_and_says_goodbye(processes: ControlPlaneProcesses) -> None:
    worker = processes.worker("-c", "3", "--label", "gpu")
    worker.says("works for")
    [node] = workers(processes.url, processes.token, "idle")
    assert (node["remote"], node["slots"], node["labels"]) == (True, 3, ["gpu"])
    rendered, running = processes.enqueue("render"), processes.enqueue("nap", seconds=4)
    processes.begins(running)
    workers(processes.url, processes.token, "busy")
    worker.send(signal.SIGTERM)
    worker.says("draining: 1 job running, up to 25 s; again to release them now")
    later = processes.enqueue("traced")

    assert worker.ends() == 0
    assert (processes.job(running), processes.job(later), processes.job(rendered)) == (
        ("done", 1),
        ("queued", 0),
        ("done", 1),
    )
    [node] = workers(processes.url, processes.token, "offline")
    assert re.search(r"node \d+ stops after", worker.output)
    for secret in (processes.token, "hwd_node"):
        assert secret not in worker.output + processes.control.output
    assert "HTTP Request" not in worker.output


def test_the_second_signal_hands_back_at_once_and_charges_no_attempt(processes: ControlPlaneProcesses) -> None:
    id = processes.enqueue("nap", seconds=60)
    worker = processes.worker()
    processes.begins(id)
    worker.send(signal.SIGINT)
    worker.says("draining")
    began = time.monotonic()
    worker.send(signal.SIGINT)

    assert worker.ends() == 0
    assert time.monotonic() - began < 20, "it waited for the grace of 25 s"
    assert processes.job(id, "state, attempt, resets") == ("queued", 0, 0)


def test_what_does_not_finish_within_the_grace_is_handed_back(processes: ControlPlaneProcesses) -> None:
    id = processes.enqueue("nap", seconds=60)
    worker = processes.worker("--grace", "500ms")
    processes.begins(id)
    worker.send(signal.SIGTERM)

    assert worker.ends() == 0
    assert processes.job(id, "state, attempt, resets") == ("queued", 0, 0)


def test_an_outcome_that_cannot_be_recorded_is_the_exit_code(processes: ControlPlaneProcesses) -> None:
    """The control plane is gone when the job finishes: as with a database of its own, the worker exits with 1."""
    id = processes.enqueue("nap", seconds=2)
    worker = processes.worker("--grace", "4s")
    processes.begins(id)
    processes.control.send(signal.SIGKILL)
    worker.send(signal.SIGTERM)

    assert worker.ends() == 1
    assert "some outcomes are not recorded: the control plane does not answer" in worker.output
    assert processes.job(id)[0] == "running"


def test_drain_ends_when_nothing_is_left(processes: ControlPlaneProcesses) -> None:
    ids = [processes.enqueue("nap", seconds=0.0) for _ in range(100)]
    slow = processes.enqueue("nap", seconds=2.0)
    worker = processes.worker("--drain", "-c", "10")

    assert worker.ends() == 0
    assert {processes.job(id)[0] for id in [*ids, slow]} == {"done"}
    assert "TOO_MANY" not in worker.output


def test_several_processes_are_several_nodes(processes: ControlPlaneProcesses) -> None:
    worker = processes.worker("--processes", "2")
    nodes = workers(processes.url, processes.token, "idle", "idle")
    assert len({node["name"] for node in nodes}) == 2
    id = processes.enqueue("environment")
    processes.becomes(id, "done")
    assert processes.job(id, "result::text") == "false", "what jobs start cannot read the token"
    worker.send(signal.SIGTERM)

    assert worker.ends() == 0
    workers(processes.url, processes.token, "offline", "offline")


def test_a_dump_shows_what_runs(processes: ControlPlaneProcesses) -> None:
    id = processes.enqueue("nap", seconds=60)
    worker = processes.worker()
    processes.begins(id)
    worker.send(signal.SIGUSR1)

    worker.says(f"job {id} (nap), most recent call last")
    worker.says("await asyncio.sleep(seconds)")
    assert worker.process.poll() is None


def test_health_and_metrics_need_no_database(processes: ControlPlaneProcesses) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    worker = processes.worker("--metrics", f"127.0.0.1:{port}")
    eventually(lambda: page_text(url, "/readyz") == "ok\n", why=lambda: worker.output)
    processes.becomes(processes.enqueue("traced"), "done")

    done = 'howdah_worker_jobs_processed_total{kind="traced",outcome="ok"} 1.0'
    eventually(lambda: done in (page_text(url, "/metrics") or ""), why=lambda: str(page_text(url, "/metrics")))
    processes.control.process.kill()
    # its lease is 3 s, and it has not beaten for longer
    eventually(lambda: "no heartbeat has succeeded" in str(page_text(url, "/readyz")), why=lambda: worker.output)
    processes.serve(port=processes.control.port)
    eventually(lambda: page_text(url, "/readyz") == "ok\n", why=lambda: worker.output)


def test_it_is_ready_again_after_it_had_to_register_again(processes: ControlPlaneProcesses) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    worker = processes.worker("--metrics", f"127.0.0.1:{port}")
    eventually(lambda: page_text(url, "/readyz") == "ok\n", why=lambda: worker.output)
    [node] = workers(processes.url, processes.token, "idle")
    assert ask(processes.url, f"/workers/{node['id']}", processes.token, method="DELETE")[0] == 204

    worker.says("registered again, as node")
    workers(processes.url, processes.token, "idle", "offline")
    time.sleep(4)
    assert page_text(url, "/readyz") == "ok\n"


def test_a_control_plane_that_is_killed_and_comes_back_costs_nothing(processes: ControlPlaneProcesses) -> None:
    processes.control.process.kill()
    control = processes.serve("--offline-after", "20s")
    worker = processes.worker(server=control.url)
    running = processes.enqueue("nap", seconds=3)
    processes.begins(running)
    port = control.port
    control.process.kill()
    control.process.wait()
    worker.says("failed (ControlPlaneUnreachable")
    eventually(lambda: f"end {running}" in processes.lines)
    time.sleep(0.5)
    assert processes.job(running)[0] == "running", "its report waits"
    later = processes.enqueue("traced")
    processes.serve("--offline-after", "20s", port=port)

    processes.becomes(running, "done")
    processes.becomes(later, "done")
    worker.says("works again after")
    assert processes.lines == [f"begin {running}", f"end {running}"]
    assert processes.job(running, "attempt, resets") == (1, 0)


def test_a_worker_that_slept_past_its_lease_changes_nothing_any_more(processes: ControlPlaneProcesses) -> None:
    id = processes.enqueue("nap", seconds=1)
    sleeper = processes.worker()
    processes.begins(id)
    os.kill(sleeper.process.pid, signal.SIGSTOP)
    other = processes.worker()
    other.says("works for")
    processes.becomes(id, "done")
    ended = processes.job(id, "finished_at, node, attempt")
    os.kill(sleeper.process.pid, signal.SIGCONT)

    sleeper.says("lost: ")
    processes.becomes(processes.enqueue("traced"), "done")
    assert processes.job(id, "finished_at, node, attempt") == ended
    outcomes = processes.conn.execute("select attempt, outcome from howdah.attempt where id = %s order by 1", (id,))
    assert outcomes.fetchall() == [(1, "lost")]
    assert processes.lines.count(f"begin {id}") == 2
    # it is a worker like any other again
    workers(processes.url, processes.token, "idle", "idle")


def test_a_worker_that_is_asked_to_drain_ends_by_itself(processes: ControlPlaneProcesses) -> None:
    worker = processes.worker()
    [node] = workers(processes.url, processes.token, "idle")
    assert ask(processes.url, f"/workers/{node['id']}/drain", processes.token, method="POST")[1]["status"] == "draining"

    assert worker.ends() == 0
    assert "has been asked to drain" in worker.output


def test_a_control_plane_that_hangs_does_not_keep_it_after_the_second_signal(processes: ControlPlaneProcesses) -> None:
    id = processes.enqueue("nap", seconds=60)
    worker = processes.worker()
    processes.begins(id)
    os.kill(processes.control.process.pid, signal.SIGSTOP)
    try:
        worker.send(signal.SIGTERM)
        worker.says("draining")
        worker.send(signal.SIGTERM)
        assert worker.ends(20) in (0, 1), "it waited for the grace of 25 s"
    finally:
        os.kill(processes.control.process.pid, signal.SIGCONT)
    processes.becomes(id, "queued")
