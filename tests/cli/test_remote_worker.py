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
from kit.serve_process import Site, ask, free_port, look, workers


@pytest.fixture
def site(database: Database, direct: Database, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(database, direct, stack, tmp_path / "notes")


def test_it_works_lets_a_running_job_finish_and_says_goodbye(site: Site) -> None:
    worker = site.worker("-c", "3", "--label", "gpu")
    worker.says("works for")
    [node] = workers(site.url, site.token, "idle")
    assert (node["remote"], node["slots"], node["labels"]) == (True, 3, ["gpu"])
    rendered, running = site.enqueue("render"), site.enqueue("nap", seconds=4)
    site.begins(running)
    workers(site.url, site.token, "busy")
    worker.send(signal.SIGTERM)
    worker.says("draining: 1 job running, up to 25 s; again to release them now")
    later = site.enqueue("traced")

    assert worker.ends() == 0
    assert (site.job(running), site.job(later), site.job(rendered)) == (("done", 1), ("queued", 0), ("done", 1))
    [node] = workers(site.url, site.token, "offline")
    assert re.search(r"node \d+ stops after", worker.output)
    for secret in (site.token, "hwd_node"):
        assert secret not in worker.output + site.control.output
    assert "HTTP Request" not in worker.output


def test_the_second_signal_hands_back_at_once_and_charges_no_attempt(site: Site) -> None:
    id = site.enqueue("nap", seconds=60)
    worker = site.worker()
    site.begins(id)
    worker.send(signal.SIGINT)
    worker.says("draining")
    began = time.monotonic()
    worker.send(signal.SIGINT)

    assert worker.ends() == 0
    assert time.monotonic() - began < 20, "it waited for the grace of 25 s"
    assert site.job(id, "state, attempt, resets") == ("queued", 0, 0)


def test_what_does_not_finish_within_the_grace_is_handed_back(site: Site) -> None:
    id = site.enqueue("nap", seconds=60)
    worker = site.worker("--grace", "500ms")
    site.begins(id)
    worker.send(signal.SIGTERM)

    assert worker.ends() == 0
    assert site.job(id, "state, attempt, resets") == ("queued", 0, 0)


def test_an_outcome_that_cannot_be_recorded_is_the_exit_code(site: Site) -> None:
    """The control plane is gone when the job finishes: as with a database of its own, the worker exits with 1."""
    id = site.enqueue("nap", seconds=2)
    worker = site.worker("--grace", "4s")
    site.begins(id)
    site.control.send(signal.SIGKILL)
    worker.send(signal.SIGTERM)

    assert worker.ends() == 1
    assert "some outcomes are not recorded: the control plane does not answer" in worker.output
    assert site.job(id)[0] == "running"


def test_drain_ends_when_nothing_is_left(site: Site) -> None:
    ids = [site.enqueue("nap", seconds=0.0) for _ in range(100)]
    slow = site.enqueue("nap", seconds=2.0)
    worker = site.worker("--drain", "-c", "10")

    assert worker.ends() == 0
    assert {site.job(id)[0] for id in [*ids, slow]} == {"done"}
    assert "TOO_MANY" not in worker.output


def test_several_processes_are_several_nodes(site: Site) -> None:
    worker = site.worker("--processes", "2")
    nodes = workers(site.url, site.token, "idle", "idle")
    assert len({node["name"] for node in nodes}) == 2
    id = site.enqueue("environment")
    site.becomes(id, "done")
    assert site.job(id, "result::text") == "false", "what jobs start cannot read the token"
    worker.send(signal.SIGTERM)

    assert worker.ends() == 0
    workers(site.url, site.token, "offline", "offline")


def test_a_dump_shows_what_runs(site: Site) -> None:
    id = site.enqueue("nap", seconds=60)
    worker = site.worker()
    site.begins(id)
    worker.send(signal.SIGUSR1)

    worker.says(f"job {id} (nap), most recent call last")
    worker.says("await asyncio.sleep(seconds)")
    assert worker.process.poll() is None


def test_health_and_metrics_need_no_database(site: Site) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    worker = site.worker("--metrics", f"127.0.0.1:{port}")
    eventually(lambda: look(url, "/readyz") == "ok\n", why=lambda: worker.output)
    site.becomes(site.enqueue("traced"), "done")

    done = 'howdah_worker_jobs_processed_total{kind="traced",outcome="ok"} 1.0'
    eventually(lambda: done in (look(url, "/metrics") or ""), why=lambda: str(look(url, "/metrics")))
    site.control.process.kill()
    # its lease is 3 s, and it has not beaten for longer
    eventually(lambda: "no heartbeat has succeeded" in str(look(url, "/readyz")), why=lambda: worker.output)
    site.serve(port=site.control.port)
    eventually(lambda: look(url, "/readyz") == "ok\n", why=lambda: worker.output)


def test_it_is_ready_again_after_it_had_to_register_again(site: Site) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    worker = site.worker("--metrics", f"127.0.0.1:{port}")
    eventually(lambda: look(url, "/readyz") == "ok\n", why=lambda: worker.output)
    [node] = workers(site.url, site.token, "idle")
    assert ask(site.url, f"/workers/{node['id']}", site.token, method="DELETE")[0] == 204

    worker.says("registered again, as node")
    workers(site.url, site.token, "idle", "offline")
    time.sleep(4)
    assert look(url, "/readyz") == "ok\n"


def test_a_control_plane_that_is_killed_and_comes_back_costs_nothing(site: Site) -> None:
    site.control.process.kill()
    control = site.serve("--offline-after", "20s")
    worker = site.worker(server=control.url)
    running = site.enqueue("nap", seconds=3)
    site.begins(running)
    port = control.port
    control.process.kill()
    control.process.wait()
    worker.says("failed (ControlPlaneUnreachable")
    eventually(lambda: f"end {running}" in site.said)
    time.sleep(0.5)
    assert site.job(running)[0] == "running", "its report waits"
    later = site.enqueue("traced")
    site.serve("--offline-after", "20s", port=port)

    site.becomes(running, "done")
    site.becomes(later, "done")
    worker.says("works again after")
    assert site.said == [f"begin {running}", f"end {running}"]
    assert site.job(running, "attempt, resets") == (1, 0)


def test_a_worker_that_slept_past_its_lease_changes_nothing_any_more(site: Site) -> None:
    id = site.enqueue("nap", seconds=1)
    sleeper = site.worker()
    site.begins(id)
    os.kill(sleeper.process.pid, signal.SIGSTOP)
    other = site.worker()
    other.says("works for")
    site.becomes(id, "done")
    ended = site.job(id, "finished_at, node, attempt")
    os.kill(sleeper.process.pid, signal.SIGCONT)

    sleeper.says("lost: ")
    site.becomes(site.enqueue("traced"), "done")
    assert site.job(id, "finished_at, node, attempt") == ended
    outcomes = site.conn.execute("select attempt, outcome from howdah.attempt where id = %s order by 1", (id,))
    assert outcomes.fetchall() == [(1, "lost")]
    assert site.said.count(f"begin {id}") == 2
    # it is a worker like any other again
    workers(site.url, site.token, "idle", "idle")


def test_a_worker_that_is_asked_to_drain_ends_by_itself(site: Site) -> None:
    worker = site.worker()
    [node] = workers(site.url, site.token, "idle")
    assert ask(site.url, f"/workers/{node['id']}/drain", site.token, method="POST")[1]["status"] == "draining"

    assert worker.ends() == 0
    assert "has been asked to drain" in worker.output


def test_a_control_plane_that_hangs_does_not_keep_it_after_the_second_signal(site: Site) -> None:
    id = site.enqueue("nap", seconds=60)
    worker = site.worker()
    site.begins(id)
    os.kill(site.control.process.pid, signal.SIGSTOP)
    try:
        worker.send(signal.SIGTERM)
        worker.says("draining")
        worker.send(signal.SIGTERM)
        assert worker.ends(20) in (0, 1), "it waited for the grace of 25 s"
    finally:
        os.kill(site.control.process.pid, signal.SIGCONT)
    site.becomes(id, "queued")
