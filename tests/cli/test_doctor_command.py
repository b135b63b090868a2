"""`howdah doctor`: a table, JSON, and the exit code."""

from __future__ import annotations

import json

import psycopg


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
    assert "vacuum: autovacuum is off for ready\n  → turn it on" in said.stdout


def test_unreachable_is_json_too(howdah):
    said = howdah("doctor", "--json", "--dsn", "postgresql://me:secret@127.0.0.1:1/x")

    assert said.exit_code == 3
    [finding] = json.loads(said.stdout)
    assert (finding["name"], finding["verdict"]) == ("database", "bad")
    assert "secret" not in said.output
