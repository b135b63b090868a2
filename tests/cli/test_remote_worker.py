"""`howdah worker --server` as a real process, without a database, against a real control plane."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from howdah.pg.database import Database
from kit.command import Command, Jobs, eventually
from kit.control import QUICK, Control, ask, make_token, workers


class Site:
    """A control plane, a token for it, and workers."""

    def __init__(self, database: Database, direct: Database, stack: ExitStack, notes: Path) -> None:
        self._database = database
        self._stack = stack
        self.notes = notes
        self.token = make_token(database, "work", "read", "admin")
        self.conn = stack.enter_context(psycopg.connect(direct.dsn, autocommit=True))
        self.control = self.serve()
        self.url = self.control.url

    def serve(self, *words: str, port: int = 0) -> Control:
        return self._stack.enter_context(Control(*QUICK, *words, port=port, dsn=self._database.dsn))

    def worker(self, *words: str, server: str | None = None, **environment: str) -> Command:
        """One that knows no database at all."""
        given = {"HOWDAH_TOKEN": self.token, "ERRANDS": str(self.notes), **environment}
        command = ("worker", "-a", "kit.errands:app", "--server", server or self.url, *words)
        return self._stack.enter_context(Command(*command, **given))

    def enqueue(self, kind: str, **args: Any) -> int:
        made = self.conn.execute("select id from howdah.enqueue(%s, %s::json)", (kind, json.dumps(args)))
        return int(made.fetchone()[0])  # type: ignore[index]

    def job(self, id: int, columns: str = "state, attempt") -> Any:
        found = self.conn.execute(f"select {columns} from howdah.jobs where id = %s", (id,)).fetchone()  # type: ignore[arg-type]
        return found if found is None or len(found) > 1 else found[0]

    def becomes(self, id: int, state: str, seconds: float = 20.0) -> None:
        eventually(lambda: self.job(id)[0] == state, seconds, lambda: str(self.job(id)))

    def begins(self, id: int) -> None:
        """Wait until its handler runs; that it is claimed is not enough."""
        eventually(lambda: f"begin {id}" in self.said, 20)

    @property
    def said(self) -> list[str]:
        """What handlers noted."""
        return self.notes.read_text().splitlines() if self.notes.exists() else []


@pytest.fixture
def site(database: Database, direct: Database, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(database, direct, stack, tmp_path / "notes")


# ---------------------------------------------------------------- signals, as any node


def test_it_works_lets_a_running_job_finish_and_says_goodbye(site: Site) -> None:
    worker = site.worker("-c", "3", "--label", "gpu")
    worker.says("works for")
    [node] = workers(site.url, site.token, "idle")
    assert (node["remote"], node["slots"], node["labels"]) == (True, 3, ["gpu"])
    rendered, running = site.enqueue("render"), site.enqueue("nap", seconds=2)
    site.begins(running)
    workers(site.url, site.token, "busy")
    worker.send(signal.SIGTERM)
    worker.says("draining: 1 job running, up to 25 s; again to hand back now")
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
    assert time.monotonic() - began < 4
    assert site.job(id, "state, attempt, resets") == ("queued", 0, 0)


def test_what_does_not_finish_within_the_grace_is_handed_back(site: Site) -> None:
    id = site.enqueue("nap", seconds=60)
    worker = site.worker("--grace", "500ms")
    site.begins(id)
    worker.send(signal.SIGTERM)

    assert worker.ends() == 0
    assert site.job(id, "state, attempt, resets") == ("queued", 0, 0)


def test_drain_ends_when_nothing_is_left(site: Site) -> None:
    ids = [site.enqueue("nap", seconds=0.0) for _ in range(100)]
    slow = site.enqueue("nap", seconds=2.0)
    worker = site.worker("--drain", "-c", "10")

    assert worker.ends(40) == 0
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
    eventually(lambda: "no heartbeat has succeeded" in str(look(url, "/readyz")), 20, lambda: worker.output)
    site.serve(port=site.control.port)
    eventually(lambda: look(url, "/readyz") == "ok\n", 20, lambda: worker.output)


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


# ---------------------------------------------------------------- what goes wrong in between


def test_a_control_plane_that_is_killed_and_comes_back_costs_nothing(site: Site) -> None:
    site.control.process.kill()
    control = site.serve("--offline-after", "20s")
    worker = site.worker(server=control.url)
    running = site.enqueue("nap", seconds=3)
    site.begins(running)
    port = control.port
    control.process.kill()
    control.process.wait()
    worker.says("failed (Unreachable")
    eventually(lambda: f"end {running}" in site.said, 10)
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
    site.becomes(id, "done", 30)
    ended = site.job(id, "finished_at, node, attempt")
    os.kill(sleeper.process.pid, signal.SIGCONT)

    sleeper.says("lost: ", 15)
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
    assert "wants node" in worker.output


def test_a_control_plane_that_hangs_does_not_keep_it_after_the_second_signal(site: Site) -> None:
    id = site.enqueue("nap", seconds=60)
    worker = site.worker()
    site.begins(id)
    os.kill(site.control.process.pid, signal.SIGSTOP)
    try:
        worker.send(signal.SIGTERM)
        worker.says("draining")
        worker.send(signal.SIGTERM)
        assert worker.ends(12) in (0, 1)
    finally:
        os.kill(site.control.process.pid, signal.SIGCONT)
    site.becomes(id, "queued", 20)


# ---------------------------------------------------------------- what it is told at the start


def test_a_token_may_be_in_a_file_and_one_on_the_command_line_is_warned_about(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(site.token + "\n")
    by_file = site.worker("--token-file", str(file), HOWDAH_TOKEN="")
    by_file.says("works for")
    assert "command line" not in by_file.output
    by_flag = site.worker("--token", site.token, HOWDAH_TOKEN="", HOWDAH_TOKEN_FILE="/no/such/file")
    by_flag.says("works for")
    assert "a token on the command line can be seen by every user of this machine" in by_flag.output
    assert site.token not in by_flag.output


@pytest.mark.parametrize(
    ("words", "environment", "code", "said"),
    [
        (("--server", "nowhere"), {}, 2, "the server is a URL such as"),
        (("--token", "hwd_api_x"), {}, 2, "no token of ours; was it cut or mistyped?"),
        (("--token-file", "/no/such/file"), {}, 2, "the token cannot be read"),
        (("--token-file", "/dev/null"), {}, 2, "holds no token of ours"),
        (("--ca", "/no/such/file", "--server", "https://127.0.0.1:1"), {}, 2, "cannot be used"),
        (("--label", "a+b"), {}, 2, "a label is 1 to 50 printable characters"),
        (("-a", "kit.nothing"), {}, 2, "there is no module 'kit.nothing'"),
        (("--wait", "1s", "--server", "http://127.0.0.1:9"), {}, 3, "at http://127.0.0.1:9 does not answer"),
        (("--token", "UNKNOWN"), {}, 2, "the token is unknown, expired or revoked"),
        ((), {"HOWDAH_TOKEN": ""}, 2, "send a token"),
    ],
)  # fmt: skip
def test_what_cannot_work_says_so_and_ends(
    site: Site, words: tuple[str, ...], environment: dict[str, str], code: int, said: str
) -> None:
    unknown = make_token_of_another_place()
    worker = site.worker(*(unknown if word == "UNKNOWN" else word for word in words), **environment)

    assert worker.ends(20) == code, worker.output
    assert said in worker.output
    assert "Traceback" not in worker.output


def make_token_of_another_place() -> str:
    from howdah.fleet.tokens import make

    return make()


def test_a_signal_while_it_waits_for_the_control_plane_ends_it_with_code_0(site: Site) -> None:
    worker = site.worker("--wait", "1m", server=f"http://127.0.0.1:{free_port()}")
    worker.says("registration failed")
    worker.send(signal.SIGTERM)

    assert worker.ends(5) == 0


def test_it_waits_for_a_control_plane_that_comes_later(site: Site) -> None:
    port = free_port()
    worker = site.worker(server=f"http://127.0.0.1:{port}")
    worker.says("registration failed")
    site.serve(port=port)

    worker.says("works for")
    site.becomes(site.enqueue("traced"), "done")


def test_settings_name_the_control_plane_too(site: Site, tmp_path: Path) -> None:
    (tmp_path / "howdah.toml").write_text(
        f'app = "kit.errands:app"\nserver = "{site.url}"\nlabels = ["gpu", "big"]\ntoken_file = "token"\n'
    )
    (tmp_path / "token").write_text(site.token)
    with Command("worker", folder=tmp_path) as worker:
        worker.says("works for")
        [node] = workers(site.url, site.token, "idle")
        assert node["labels"] == ["gpu", "big"]
        site.becomes(site.enqueue("render"), "done")


def test_tls_is_checked_against_the_authority_that_is_named(site: Site, tmp_path: Path) -> None:
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=howdah"
    extra = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*words.split(), *extra], check=True, capture_output=True, timeout=30)
    control = site.serve("--cert", str(cert), "--key", str(key))

    trusting = site.worker("--ca", str(cert), server=control.url)
    trusting.says("works for https://")
    site.becomes(site.enqueue("traced"), "done")
    doubting = site.worker("--wait", "1s", server=control.url)
    assert doubting.ends() == 3
    assert "certificate verify failed" in doubting.output


def test_a_node_with_a_database_takes_labels_too(site: Site, database: Database, direct: Database) -> None:
    id = site.enqueue("render")
    site.conn.execute("update howdah.job set queue = queue where id = %s", (id,))
    jobs = Jobs(direct.dsn)
    with Command("worker", "-a", "kit.errands:app", "--label", "gpu", "--drain", dsn=database.dsn) as worker:
        assert worker.ends() == 0
    assert jobs.all() == ["done"]
    jobs.close()


def look(url: str, path: str) -> str | None:
    try:
        return str(ask(url, path)[1])
    except OSError:
        return None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
