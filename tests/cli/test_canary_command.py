"""A canary in an argument, in the environment and in the DSN of a node, and a look into all that it and the command
line say: it must be found nowhere (S8).
"""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from click.testing import CliRunner

from howdah.cli import main
from howdah.postgres.database import Database
from kit.command import Command, eventually
from kit.serve_process import free_port

CANARY = "Kanarienvogel4711"
KINDS = ("charge", "charge_in_thread", "charge_in_process")
PAGES = ("/metrics", "/livez", "/readyz")


@pytest.fixture
def guarded(direct: Database) -> Iterator[tuple[str, psycopg.Connection]]:
    """The DSN of a role whose password is the canary, and a connection of somebody who may lock it out."""
    name = f"canary_{os.getpid()}"
    parts = urlsplit(direct.dsn)
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        conn.execute(f"create role {name} superuser login password '{CANARY}'")
        yield urlunsplit(parts._replace(netloc=f"{name}:{CANARY}@{parts.netloc.rpartition('@')[2]}")), conn
        conn.execute(f"reassign owned by {name} to current_user")
        conn.execute(f"drop role {name}")


@pytest.fixture
def howdah(guarded, nowhere) -> Callable[..., str]:
    """Runs `howdah` with the canary in its environment; returns what it said, both ways."""

    def run(*words: str, stdin: str = "", code: int | None = 0, app: bool = True) -> str:
        env = {"HOWDAH_DSN": guarded[0], "SHOP_TOKEN": CANARY, "HOWDAH_APP": "kit.secret_app:app" if app else ""}
        done = CliRunner().invoke(main, list(words), input=stdin, env=env, prog_name="howdah")
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert code in (None, done.exit_code), done.output
        return done.output

    return run


def titles(pid: int) -> str:
    """What every user of the machine can read of a process."""
    return "".join(Path(f"/proc/{pid}/{name}").read_text() for name in ("cmdline", "comm"))


def test_a_canary_is_found_nowhere(guarded, howdah):
    dsn, conn = guarded
    port = free_port()
    words = ("worker", "-a", "kit.secret_app:app", "--metrics", f"127.0.0.1:{port}", "--poll", "500ms")
    with Command(*words, dsn=dsn, SHOP_TOKEN=CANARY, HOWDAH_LOG_LEVEL="debug", HOWDAH_LOG_JSON="true") as worker:
        worker.says("starts: ", 60)
        for kind in KINDS:
            assert "enqueued job" in howdah("enqueue", kind, "-", stdin=f'{{"card": "{CANARY}"}}')
        # another language marks its own; the name of a key is enough where nobody does
        marked = '{"howdah.secrets": ["/card"], "team": "a"}'
        howdah("enqueue", "nobody_knows", "-", "--meta", marked, stdin=f'{{"card": "{CANARY}"}}', app=False)
        howdah("enqueue", "connect", "-", "--max-attempts", "1", stdin=f'{{"password": "{CANARY}"}}', app=False)
        howdah("enqueue", "charge", "-", stdin=f'{{"card": ["{CANARY}"]}}', code=2)

        def failed() -> bool:
            return conn.execute("select count(*) from howdah.done where state = 'f'").fetchone() == (len(KINDS) + 1,)

        eventually(failed, 60, lambda: worker.output)
        family = [worker.process.pid, *worker.children]
        assert len(family) == 2, "the process of a handler is among them"
        shown = "".join(map(titles, family))
        pages = [urllib.request.urlopen(f"http://127.0.0.1:{port}{page}").read().decode() for page in PAGES]
        worker.send(signal.SIGUSR1)
        worker.says("running:", 60)

        looks = []
        for app in (True, False):  # with the application, and for somebody who has not got it
            looks += [howdah("job", str(id), *how, app=app) for id in range(1, 6) for how in ((), ("--json",))]
            for verb in ("jobs", "queues", "nodes", "schedules", "doctor"):
                looks += [howdah(verb, *how, app=app, code=None) for how in ((), ("--json",))]
        looks.append(howdah("retry", "1"))

        role = urlsplit(dsn).username
        conn.execute(f"alter role {role} nologin")
        conn.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", (role,))
        worker.says("is not permitted to log in", 60)
        looks.append(howdah("jobs", code=3))
        looks.append(howdah("doctor", code=3))
        conn.execute(f"alter role {role} login")
        worker.send(signal.SIGTERM)
        worker.send(signal.SIGTERM)
        assert worker.ends(60) == 0

    outputs = [worker_output := worker.last_output, shown, *pages, *looks]
    assert [each for each in outputs if CANARY in each] == []
    # it would have been there: what surrounds it is
    for kind in KINDS[:2]:
        assert re.search(rf'"message": "charging \*\*\*".* "kind": "{kind}"', worker_output), kind
    assert "\ncannot charge\nTraceback" in worker_output, "the process of a handler logs by Python's last resort"
    assert "postgresql://" in worker_output
    assert re.search(r"token=\*\*\*", worker_output)
    assert '"card": "***"' in "".join(looks)
    assert '"team": "a"' in "".join(looks)
    assert "howdah.secrets" not in "".join(looks)
    assert "howdah_" in pages[0]
    held = conn.execute("select count(*) from howdah.job where args::text like %s", (f"%{CANARY}%",)).fetchone()
    assert held == (len(KINDS) + 2,), "the arguments themselves are kept as they are"


def test_what_is_typed_wrong_is_not_said_again(howdah):
    """The shell's history is bad enough."""
    for words in (
        ("jobs", "--dsn", f"postgresql://me:{CANARY}@127.0.0.1:1/none"),
        ("doctor", "--dsn", f"postgresql://me:{CANARY}@127.0.0.1:1/none"),
    ):
        assert CANARY not in howdah(*words, code=3)
