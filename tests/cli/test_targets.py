"""Which database a command acts on, and what happens when it is not there."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from howdah import Howdah
from howdah.cli import dev
from howdah.cli.target import Target
from howdah.options import Given
from howdah.postgres import migrate
from howdah.postgres.dsn import hide_password
from kit.roles import owner

HOSTILE = 'we"ird; drop--'


def test_migrate_plan_sql_check_and_run(howdah, database):
    schema = ("--schema", HOSTILE)

    before = howdah("migrate", "--check", *schema)
    plan = howdah("migrate", "--plan", *schema)
    script = howdah("migrate", "--sql", *schema)
    ran = howdah("migrate", *schema)
    after = [howdah("migrate", *how, *schema) for how in (("--check",), ("--plan",), ("--sql",), ())]

    assert before.exit_code == 4
    assert before.stderr == f"howdah: schema {HOSTILE!r} does not exist; run `howdah migrate`\n"
    assert plan.stdout.startswith("0001 jobs\n")
    assert script.stdout.startswith("begin;")
    assert 'create schema if not exists "we""ird; drop--"' in script.stdout
    assert "0001 jobs: done\n" in ran.stdout
    assert [each.exit_code for each in after] == [0, 0, 0, 0]
    assert [each.stdout.split("\n")[0] for each in after[1:3]] == ["nothing to do", "-- nothing to do"]
    mine = owner(database).dsn
    assert howdah("enqueue", "send", *schema, dsn=mine).exit_code == 0
    assert len(json.loads(howdah("jobs", "--json", *schema, dsn=mine).stdout)) == 1
    assert howdah("jobs").stdout == "no such jobs\n"


@pytest.mark.parametrize(
    "words",
    [
        ("jobs",),
        ("job", "1"),
        ("queues",),
        ("nodes",),
        ("retry", "1"),
        ("cancel", "1"),
        ("pause", "q"),
        ("resume", "q"),
        ("prune",),
        ("enqueue", "k"),
        ("migrate", "--check"),
        ("doctor",),
    ],
)
def test_a_schema_that_is_not_there_exits_4(howdah, words):
    result = howdah(*words, "--schema", "missing")

    assert result.exit_code == 4
    assert "run `howdah migrate`" in result.stderr + result.stdout


@pytest.mark.parametrize("words", [("jobs",), ("migrate",), ("prune",), ("enqueue", "k"), ("doctor",)])
def test_a_database_that_does_not_answer_exits_3_and_keeps_the_password(howdah, words):
    result = howdah(*words, "--dsn", "postgresql://me:s3cr@t/x@127.0.0.1:1/none")

    assert result.exit_code == 3
    assert "cannot reach postgresql://me:***@127.0.0.1:1/none" in result.stderr + result.stdout
    assert "s3cr" not in result.output
    assert "t/x" not in result.output


def test_a_database_that_does_not_exist_exits_3(howdah, server):
    result = howdah("jobs", dsn=server.dsn_for("no_such_database"))

    assert result.exit_code == 3
    assert result.stderr.startswith("howdah: ")
    assert result.stderr.count("\n") == 1


def test_a_dsn_that_is_none_exits_2(howdah):
    result = howdah("jobs", dsn="what is this")

    assert result.exit_code == 2
    assert "invalid DSN" in result.stderr


def test_no_database_at_all_exits_2(howdah):
    result = howdah("jobs", dsn="")

    assert result.exit_code == 2
    assert result.stderr.startswith("howdah: no database is named; give --dsn")


def test_the_settings_file_names_the_database(howdah, nowhere, database):
    (nowhere / "howdah.toml").write_text(f"dsn = '{database.dsn}'\n")
    (nowhere / "bad.toml").write_text("dsm = 'x'\n")

    assert howdah("jobs", dsn="").exit_code == 0
    wrong = howdah("jobs", "--config", "bad.toml", dsn="")
    assert (wrong.exit_code, wrong.stderr) == (2, "howdah: bad.toml: unknown key 'dsm'; did you mean 'dsn'?\n")


def test_the_app_names_the_database(howdah, nowhere, database):
    (nowhere / "shop_named.py").write_text(f"from howdah import Howdah\napp = Howdah({database.dsn!r})\n")

    assert howdah("jobs", "-a", "shop_named", dsn="").exit_code == 0
    assert howdah("jobs", "-a", "shop_named", dsn="postgresql://127.0.0.1:1/x").exit_code == 0, (
        "code before environment"
    )
    assert howdah("jobs", "-a", "shop_named", "--dsn", "postgresql://127.0.0.1:1/x").exit_code == 3, "flags before code"
    assert howdah("jobs", "-a", "shop_named", "--schema", "nope").exit_code == 4
    assert howdah("jobs", "-a", "shop_missing").exit_code == 2


def test_an_app_without_a_database_uses_the_settings(howdah, nowhere, database):
    (nowhere / "shop_bare.py").write_text("from howdah import Howdah\napp = Howdah(schema='other')\n")
    (nowhere / "howdah.toml").write_text(f"dsn = '{owner(database).dsn}'\napp = 'shop_bare'\n")

    assert howdah("migrate", dsn="").stdout.endswith(f"schema 'other' is at version {migrate.needed()}\n")
    assert howdah("migrate", "--check", dsn="", HOWDAH_SCHEMA="howdah").exit_code == 0


def test_a_bug_of_ours_is_not_hidden(howdah, monkeypatch):
    monkeypatch.setattr("howdah.jobs.admin.Admin.queues", lambda self: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        howdah("queues")


def whole(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "howdah", *words], capture_output=True, text=True, env=env, timeout=60, check=False
    )


def test_a_process_of_its_own(database, nowhere):
    made = whole("enqueue", "send", HOWDAH_DSN=database.dsn)
    listed = whole("jobs", "--json", HOWDAH_DSN=database.dsn)
    refused = whole("jobs", HOWDAH_DSN="postgresql://me:secret@127.0.0.1:1/x")
    debug = whole("jobs", HOWDAH_DSN="postgresql://me:secret@127.0.0.1:1/x", HOWDAH_DEBUG="1")
    version = whole("--version")

    assert (made.returncode, made.stdout) == (0, "enqueued job 1\n")
    assert json.loads(listed.stdout)[0]["state"] == "queued"
    assert (refused.returncode, refused.stderr.count("\n")) == (3, 1)
    assert "Traceback" in debug.stderr
    assert version.stdout.startswith("howdah 0.")


def test_prune_keeps_what_the_app_keeps(howdah, nowhere):
    (nowhere / "shop_keeps.py").write_text(
        "from howdah import Howdah, Retention\napp = Howdah(retention=Retention(done=60 * 86400))\n"
    )

    asks = howdah("prune", "-a", "shop_keeps", "--done-after", "20d")
    less = howdah("prune", "-a", "shop_keeps", "--done-after", "20d", HOWDAH_RETENTION_DONE="10d")
    more = howdah("prune", "-a", "shop_keeps", "--done-after", "70d")

    assert (asks.exit_code, "--yes" in asks.stderr) == (2, True), "the app keeps them for 60 days"
    assert (less.exit_code, more.exit_code) == (0, 0)
    assert howdah("prune", "--done-after", "20d").exit_code == 0, "without the app, 14 days"


def test_dev_uses_the_database_that_other_commands_use(nowhere, monkeypatch):
    app = Howdah("postgresql://me:pw@code/x")
    monkeypatch.setenv("HOWDAH_DSN", "postgresql://environment/x")
    flag = Target({"dsn": Given("postgresql://flag/x", "--dsn")})

    for target, app_, wanted in (
        (Target(), app, "postgresql://me:***@code/x"),
        (Target(), Howdah(), "postgresql://environment/x"),
        (flag, app, "postgresql://flag/x"),
    ):
        with dev._database(target, app_) as shown:
            assert shown == wanted
            assert hide_password(target.dsn(app_)) == wanted
