"""The command line as each role: what it is for works, and the rest says why it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from howdah.cli import main
from security.user_interfaces import READING_COMMANDS

Run = Callable[..., Result]
DENIED = "connect as a role that may, docs/howto/deploy.md lists them"


@pytest.fixture
def howdah(roles: Callable[[str], str], tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `howdah` as a role; what it says with the exit code."""
    monkeypatch.chdir(tmp_path)

    def run(role: str, *words: str) -> Result:
        env = {"HOWDAH_DSN": roles(f"howdah_{role}"), "HOWDAH_APP": "", "HOWDAH_TEST_ROLES": ""}
        done = CliRunner().invoke(main, list(words), env=env, prog_name="howdah")
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    return run


@pytest.fixture
def work(direct: Any) -> psycopg.Connection:
    """Some of everything there is to look at."""
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        conn.execute("select howdah.grow()")
        conn.execute("select howdah.enqueue('note', '{\"n\": 1}', key => 'k') from generate_series(1, 3)")
        conn.execute("select howdah.enqueue('other', queue => 'mail')")
        conn.execute("select howdah.declare_scope('Mail', 1, null, null, 0)")
        conn.execute("select howdah.append('Order-1', '[{\"type\": \"Placed\"}]')")
        yield conn


@pytest.mark.parametrize("role", ["read", "worker", "fleet"])
def test_whoever_may_look_looks(howdah: Run, work: Any, role: str) -> None:
    for words in READING_COMMANDS:
        done, as_json = howdah(role, *words), howdah(role, *words, "--json")

        assert (done.exit_code, as_json.exit_code) == (0, 0), (words, done.output, as_json.output)
        assert "permission denied" not in done.output + as_json.output, words
        assert isinstance(json.loads(as_json.stdout), dict | list), words


def test_whoever_may_enqueue_enqueues_and_that_is_all(howdah: Run, work: Any) -> None:
    done = howdah("enqueue", "enqueue", "note", '{"n": 2}', "--queue", "mail", "--json")
    assert done.exit_code == 0, done.output
    assert work.execute(
        "select kind, queue from howdah.jobs where id = %s", (json.loads(done.stdout)["id"],)
    ).fetchone() == (
        "note",
        "mail",
    )
    for words in (
        *READING_COMMANDS[:-1],
        ("cancel", "1"),
        ("pause", "mail"),
        ("prune",),
        ("token", "list"),
        ("migrate", "--check"),
    ):
        refused = howdah("enqueue", *words)
        assert refused.exit_code == 1, (words, refused.output)
        assert refused.output.startswith("howdah: permission denied for "), words
        assert refused.output.strip().endswith(DENIED), words


def test_whoever_may_only_look_changes_nothing(howdah: Run, work: Any) -> None:
    acts = [
        ("enqueue", "note"),
        ("cancel", "1"),
        ("pause", "mail"),
        ("resume", "mail"),
        ("move", "1", "--to", "mail"),
        ("reprioritize", "1", "--to", "5"),
        ("delete", "1", "--yes"),
        ("prune",),
        ("consumers", "pause", "Mail"),
        ("log", "append", "Order-1", "Paid", "{}"),
        ("token", "create", "me", "--scope", "admin"),
    ]
    for words in acts:
        done = howdah("read", *words)
        assert done.exit_code == 1, (words, done.output)
        assert done.output.strip().endswith(DENIED), words
    work.execute("delete from howdah.migration where number = (select max(number) from howdah.migration)")
    behind = howdah("read", "migrate")
    assert behind.exit_code == 1, behind.output
    assert behind.output.strip().endswith(DENIED)


def test_the_worker_acts_and_makes_no_tokens(howdah: Run, work: Any) -> None:
    for words in (
        ("pause", "mail"),
        ("resume", "mail"),
        ("reprioritize", "1", "--to", "5"),
        ("move", "1", "--to", "mail"),
        ("cancel", "1"),
        ("retry", "1"),
        ("consumers", "pause", "Mail"),
        ("consumers", "resume", "Mail"),
        ("log", "append", "Order-1", "Paid", "{}"),
        ("prune",),
        ("delete", "1", "--yes"),
        ("migrate", "--check"),
    ):
        done = howdah("worker", *words)
        assert done.exit_code == 0, (words, done.output)
    for words in (("token", "create", "me", "--scope", "admin"), ("token", "list"), ("token", "revoke", "1")):
        refused = howdah("worker", *words)
        assert refused.exit_code == 1, refused.output
        assert refused.output.strip().endswith(DENIED)


def test_the_owner_makes_tokens_and_the_control_plane_only_reads_them(howdah: Run, work: Any) -> None:
    made = howdah("owner", "token", "create", "me", "--scope", "admin")
    assert made.exit_code == 0, made.output
    listed = howdah("fleet", "token", "list", "--json")
    assert [each["name"] for each in json.loads(listed.stdout)] == ["me"]
    for words in (
        ("token", "create", "me", "--scope", "admin"),
        ("token", "revoke", "1"),
        ("consumers", "pause", "Mail"),
    ):
        refused = howdah("fleet", *words)
        assert refused.exit_code == 1, refused.output
        assert refused.output.strip().endswith(DENIED)
