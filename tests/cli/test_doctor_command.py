"""`howdah doctor`: a table, JSON, and the exit code."""

from __future__ import annotations

import json

import psycopg

from howdah.table import ddl
from howdah.table.options import TableOptions


def test_nothing_bad_exits_0(howdah):
    said = howdah("doctor")
    findings = json.loads(howdah("doctor", "--json").stdout)

    assert said.exit_code == 0
    assert said.stdout.splitlines()[0].split() == ["check", "verdict", "finding"]
    assert findings[0]["name"] == "database"
    assert {finding["verdict"] for finding in findings} <= {"ok", "warn"}


def test_a_warning_says_what_to_do_and_exits_0(howdah):
    howdah("enqueue", "send", "-q", "mail")
    howdah("pause", "mail", "--by", "ada")

    said = howdah("doctor")

    assert said.exit_code == 0
    assert "→ howdah resume mail" in said.stdout


def test_something_bad_exits_1(howdah, direct):
    with psycopg.connect(direct.dsn) as conn:
        conn.execute("alter table howdah.ready set (autovacuum_enabled = false)")

    said = howdah("doctor")

    assert said.exit_code == 1
    assert (
        "vacuum: autovacuum is off for ready\n  → alter table howdah.ready reset (autovacuum_enabled)\n" in said.stdout
    )


def test_tables_of_the_app_are_examined_with_it(howdah, nowhere, direct):
    (nowhere / "tabled.py").write_text("from howdah import Howdah\napp = Howdah()\napp.table('uploads')\n")
    with psycopg.connect(direct.dsn) as conn:
        for statement in ddl.create(TableOptions(table="uploads")):
            conn.execute(statement)
        conn.execute("drop index uploads_waiting")

    without, said = howdah("doctor"), howdah("doctor", "-a", "tabled")
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        conn.execute(said.stdout.rpartition("→ ")[2])
    mended = howdah("doctor", "-a", "tabled")

    assert "uploads" not in without.stdout
    assert said.exit_code == 0
    assert "tables: no index of table public.uploads covers just the waiting rows" in said.stdout
    assert "→ create index concurrently if not exists " in said.stdout
    assert "uploads: a claim reads uploads_waiting" in mended.stdout


def test_unreachable_is_json_too(howdah):
    said = howdah("doctor", "--json", "--dsn", "postgresql://me:secret@127.0.0.1:1/x")

    assert said.exit_code == 3
    [finding] = json.loads(said.stdout)
    assert (finding["name"], finding["verdict"]) == ("database", "bad")
    assert "secret" not in said.output
