"""`howdah why`: the gates as lines, as JSON, and the exit code."""

from __future__ import annotations

import json

import psycopg
import pytest

from table.ddl import ddl


@pytest.fixture
def paused(howdah):
    """A job that waits in a paused queue, and no node."""
    howdah("enqueue", "send", "-q", "mail")
    howdah("pause", "mail", "--by", "ada\x1b[31m")


def test_what_is_in_the_way_comes_first_with_what_to_do(howdah, paused):
    result = howdah("why", "1")

    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "job 1: 2 of 6 gates closed"
    assert lines[1] == "✗ closed  node    no node is live"
    assert lines[2] == "                  → start a worker: howdah worker -a module:app -q mail"
    assert lines[3].startswith("✗ closed  pause   queue 'mail' is paused by ada\\x1b[31m since 20")
    assert lines[4] == "                  → howdah resume mail"
    assert [line.split()[:3] for line in lines[5:]] == [
        ["✓", "open", name] for name in ("schema", "due", "turn", "lock")
    ]


def test_json_has_the_same(howdah, paused):
    gates = json.loads(howdah("why", "1", "--json").stdout)

    assert [(gate["name"], gate["open"]) for gate in gates[:3]] == [("node", False), ("pause", False), ("schema", True)]
    assert gates[1]["fix"] == "howdah resume mail"
    assert all(set(gate) == {"name", "open", "fact", "fix"} for gate in gates)


def test_every_gate_open(howdah, direct):
    howdah("enqueue", "send")
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        conn.execute("insert into howdah.node (name, kinds, slots) values ('web:7', '{send}', 5)")

    result = howdah("why", "1")

    assert result.exit_code == 0
    assert result.stdout.startswith("job 1: every gate is open\n✓ open    schema ")


def test_no_such_job_exits_1(howdah):
    result = howdah("why", "7")

    assert result.exit_code == 1
    assert result.stderr == "howdah: there is no job 7; no job has had this id yet\n"


def test_another_schema_is_said_and_exits_4(howdah, direct, paused):
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        conn.execute("delete from howdah.migration where number > 1")

    result = howdah("why", "1")

    assert result.exit_code == 4
    assert "✗ closed  schema  schema 'howdah' is at version 1, this code needs " in result.stdout
    assert "→ run `howdah migrate`" in result.stdout


@pytest.mark.parametrize(
    "words", [(), ("x",), ("1", "--consumer", "y"), ("--table", "t"), ("--table", "t", "--consumer", "y"), ("1" * 30,)]
)
def test_what_cannot_be_understood_exits_2(howdah, words):
    assert howdah("why", *words).exit_code == 2


def test_a_consumer(howdah, shop):
    shop.catch_up()

    result = howdah("why", "--consumer", "totals")
    assert result.exit_code == 0
    assert "✗ closed  node      no live node has this consumer\n" in result.stdout
    assert howdah("why", "--consumer", "none").exit_code == 2


def test_a_row(howdah, direct):
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        conn.execute(ddl())
        conn.execute("insert into uploads default values")

    result = howdah("why", "--table", "uploads", "1")
    assert result.exit_code == 0
    assert result.stdout.startswith(
        "row 1 of uploads: 1 of 3 gates closed\n✗ closed  node    none of 0 live nodes processes"
    )
    assert howdah("why", "--table", "uploads", "2").exit_code == 1
