"""`howdah doctor`: a table, JSON, and the exit code."""

from __future__ import annotations

import json

import psycopg

from howdah.table import ddl
from howdah.table.options import TableOptions


def test_nothing_bad_exits_0(howdah):
    result = howdah("doctor")
    findings = json.loads(howdah("doctor", "--json").stdout)

    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].split() == ["check", "verdict", "finding"]
    assert findings[0]["name"] == "database"
    assert {finding["verdict"] for finding in findings} <= {"ok", "warn"}


def test_a_warning_says_what_to_do_and_exits_0(howdah):
    howdah("enqueue", "send", "-q", "mail")
    howdah("pause", "mail", "--by", "ada")

    result = howdah("doctor")

    assert result.exit_code == 0
    assert "→ howdah resume mail" in result.stdout


def test_something_bad_exits_1(howdah, direct):
    with psycopg.connect(direct.dsn) as conn:
        conn.execute("alter table howdah.ready set (autovacuum_enabled = false)")

    result = howdah("doctor")

    assert result.exit_code == 1
    assert (
        "vacuum: autovacuum is off for ready\n  → alter table howdah.ready reset (autovacuum_enabled)\n"
        in result.stdout
    )


def test_tables_of_the_app_are_examined_with_it(howdah, nowhere, direct):
    (nowhere / "tabled.py").write_text("from howdah import Howdah\napp = Howdah()\napp.table('uploads')\n")
    with psycopg.connect(direct.dsn) as conn:
        for statement in ddl.create(TableOptions(table="uploads")):
            conn.execute(statement)
        conn.execute("drop index uploads_waiting")

    without, with_app = howdah("doctor"), howdah("doctor", "-a", "tabled")
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        conn.execute(with_app.stdout.rpartition("→ ")[2])
    mended = howdah("doctor", "-a", "tabled")

    assert "uploads" not in without.stdout
    assert with_app.exit_code == 0
    assert "tables: no index of table public.uploads covers just the waiting rows" in with_app.stdout
    assert "→ create index concurrently if not exists " in with_app.stdout
    assert "uploads: a claim reads uploads_waiting" in mended.stdout


def test_unreachable_is_json_too(howdah):
    result = howdah("doctor", "--json", "--dsn", "postgresql://me:secret@127.0.0.1:1/x")

    assert result.exit_code == 3
    [finding] = json.loads(result.stdout)
    assert (finding["name"], finding["verdict"]) == ("database", "bad")
    assert "secret" not in result.output
