"""As process 1 of a container: every orphan is reaped, signals arrive, exit codes are kept."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import psycopg
import pytest

from howdah.postgres.database import Database
from kit.command import TESTS, Jobs, children, eventually
from kit.command_app import ORPHANS
from kit.roles import dsn_for
from kit.sidecar import TOKEN

UNSHARE = ["unshare", *([] if os.getuid() == 0 else ["--user", "--map-root-user"]), "--pid", "--fork", "--mount-proc"]
HAS_NAMESPACES = not subprocess.run([*UNSHARE, "--kill-child", "true"], capture_output=True).returncode
pytestmark = pytest.mark.skipif(not HAS_NAMESPACES, reason="no namespace for process numbers can be made here")


class One:
    """Process 1 of a namespace of its own, seen from outside."""

    def __init__(self, outer: subprocess.Popen[bytes], log: Path) -> None:
        self.outer = outer
        self.log = log
        [self.pid] = eventually(lambda: children(outer.pid), why=log.read_text)

    def says(self, text: str) -> None:
        eventually(lambda: text in self.log.read_text(), why=self.log.read_text)

    def below(self) -> list[tuple[int, str]]:
        """The processes of the namespace and their states, also of dead ones."""
        found, waiting = [], [self.pid]
        for pid in waiting:
            for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
                found.append((child, Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]))
                waiting.append(child)
        return found

    def ends(self, number: signal.Signals) -> int:
        os.kill(self.pid, number)
        return self.outer.wait(60)


@contextmanager
def as_one(log: Path, *words: str, **environment: str) -> Iterator[One]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("HOWDAH_", "PG"))}
    with log.open("wb") as output:
        outer = subprocess.Popen(
            [*UNSHARE, "--kill-child", sys.executable, *words],
            env={**own, "PYTHONPATH": str(TESTS), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield One(outer, log)
    finally:
        outer.kill()  # --kill-child: the namespace ends with it
        outer.wait()


def zombies(one: One) -> int:
    for _ in range(10):
        try:
            return sum(state == "Z" for _, state in one.below())
        except (FileNotFoundError, ProcessLookupError):
            continue  # one ended while we looked
    raise AssertionError("processes end faster than we can look")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_that_is_process_one_leaves_no_zombies(database: Database, direct: Database, tmp_path, processes):
    jobs = Jobs(direct.dsn)
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        conn.execute("select howdah.enqueue('orphan', '{}')")
    words = ("-m", "howdah", "worker", "-a", "kit.command_app:app", "--processes", processes)
    with as_one(tmp_path / "log", *words, HOWDAH_DSN=dsn_for(database.dsn, "worker")) as one:
        eventually(lambda: jobs.all() == ["done"], why=one.log.read_text)

        assert jobs.all("result") == [7], "the exit code of a child of its own was taken"
        eventually(lambda: zombies(one) == 0, 10, lambda: str(one.below()))
        assert one.ends(signal.SIGTERM) == 0
    jobs.close()


def test_a_sidecar_that_is_process_one_leaves_no_zombies(tmp_path):
    agent = "sh -c 'for i in 1 2 3 4 5; do setsid sleep 0.1 & done; exit 0'"
    words = ("-m", "howdah", "sidecar", "--port", "0", "--folder", str(tmp_path / "w"), "--agent", agent)
    with as_one(tmp_path / "log", *words, HOWDAH_SIDECAR_TOKEN=TOKEN) as one:
        one.says("listens on")
        port = eventually(lambda: re.search(r"listens on 127\.0\.0\.1:(\d+)", one.log.read_text()))[1]
        url, headers = f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60) as client:
            for number in range(4):
                assert client.post("/execute", json={"attempt": str(number), "prompt": "go"}).status_code == 200
                assert client.delete(f"/workspaces/{number}").status_code == 204

        eventually(lambda: zombies(one) == 0 and len(one.below()) == 1, 10, lambda: str(one.below()))
        assert one.ends(signal.SIGINT) == 0


def test_the_check_sees_the_zombies_of_a_process_one_that_reaps_nothing(tmp_path):
    code = (
        "import subprocess, time\n"
        f"for _ in range({ORPHANS}): subprocess.run(['sh', '-c', 'setsid sleep 0.1 & exit 0'])\n"
        "time.sleep(60)"
    )
    with as_one(tmp_path / "log", "-c", code) as one:
        eventually(lambda: zombies(one) == ORPHANS, 30, lambda: str(one.below()))


@pytest.mark.parametrize(
    ("end", "code"),
    [("raise SystemExit(3)", 3), ("os.kill(os.getpid(), signal.SIGKILL)", 137), ("os._exit(0)", 0)],
)
def test_process_one_ends_as_the_command_did(tmp_path, end: str, code: int):
    program = (
        "import os, signal, time\nfrom howdah.cli.startup import become_init\nbecome_init()\nassert os.getpid() > 1\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)\n{end}"
    )
    with as_one(tmp_path / "log", "-c", program) as one:
        (tmp_path / "go").touch()
        assert one.outer.wait(60) == code, one.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTTIN, signal.SIGHUP, signal.SIGTERM])
def test_process_one_passes_signals_on(tmp_path, number: signal.Signals):
    program = (
        "import signal\nfrom howdah.cli.startup import become_init\nbecome_init()\n"
        f"signal.pthread_sigmask(signal.SIG_BLOCK, [{int(number)}])\nprint('waits', flush=True)\n"
        f"print('got', signal.sigwait([{int(number)}]), flush=True)\n"
    )
    with as_one(tmp_path / "log", "-c", program) as one:
        one.says("waits")
        assert one.ends(number) == 0
        assert "got" in one.log.read_text()
