"""Other processes that use an embedded server, as ourselves or as another user."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from howdah.postgres.embedded import binaries
from howdah.postgres.embedded import data_directory as folder
from howdah.postgres.embedded import server as embedded

USE = """
import sys
from howdah.postgres.embedded import server as embedded
server = embedded.start(sys.argv[1] or None)
print(server.dsn, flush=True)
sys.stdin.read()
server.stop()
"""


class ServerUser:
    """An account that runs Python code which imports ``howdah.postgres``."""

    def __init__(self, name: str | None, package: Path) -> None:
        self.name = name
        self.user = {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []} if name else {}
        self.python = sys.executable
        self.environment = {**os.environ, "PYTHONPATH": str(package)}
        if name:
            self.environment |= {"HOME": "/", "HOWDAH_PG_BIN": str(self._binaries())}
            self.environment.pop("TMPDIR", None)

    @staticmethod
    def _binaries() -> Path:
        entry = pwd.getpwnam("nobody")
        other = binaries.Account("nobody", entry.pw_uid, entry.pw_gid)
        return binaries.reachable(binaries.find(), other).folder

    def find_python(self) -> bool:
        """Whether there is a Python that this person can run."""
        for name in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
            test = [name, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
            try:
                if subprocess.run(test, **self.user, cwd="/", stderr=subprocess.DEVNULL).returncode == 0:
                    self.python = name
                    return True
            except OSError:
                continue
        return False

    @contextmanager
    def running(self, code: str, *arguments: str, **how: object) -> Iterator[subprocess.Popen[str]]:
        """Run ``code`` in a process of its own, killed at the end if it still runs."""
        process = subprocess.Popen(
            [self.python, "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env=self.environment,
            **self.user,
            **how,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def package(parent: Path) -> Path:
    """Copy what an embedded server needs to where everybody can read it."""
    source = Path(embedded.__file__).parents[2]
    target = parent / "package" / "howdah"
    (target / "postgres" / "embedded").mkdir(parents=True)
    for name in ("__init__.py", "postgres/__init__.py", "postgres/embedded/__init__.py"):
        (target / name).write_text("")
    modules = ("binaries", "server", "data_directory", "guardian")
    for module in ("errors", *(f"postgres/embedded/{module}" for module in modules)):
        shutil.copyfile(source / f"{module}.py", target / f"{module}.py")
    for path in (parent / "package").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return parent / "package"


def works(dsn: str) -> bool:
    """Whether the server behind ``dsn`` answers a query."""
    try:
        with psycopg.connect(dsn, connect_timeout=2) as conn:
            return conn.execute("select 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def gone(home: Path) -> bool:
    """Whether no guardian and no process of PostgreSQL is left: each of them holds the lock."""
    if not (home / "howdah.lock").exists():
        return True
    descriptor = folder.lock(home)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


def postmaster(home: Path) -> int:
    """Return the process id of the server of ``home``."""
    return int((home / "data" / "postmaster.pid").read_text().split()[0])


def guardian(home: Path) -> int:
    """Return the process id of the guardian of ``home``."""
    facts = Path(f"/proc/{postmaster(home)}/stat").read_text()
    return int(facts.rpartition(")")[2].split()[1])


def within(seconds: float, is_so: Callable[[], bool]) -> bool:
    """Whether it ``is_so`` before ``seconds`` have passed."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def kill(process: subprocess.Popen[str]) -> None:
    """End a process without giving it a chance to say goodbye."""
    process.send_signal(signal.SIGKILL)
    process.wait()
