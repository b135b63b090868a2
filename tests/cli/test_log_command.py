"""`howdah log`."""

from __future__ import annotations

import asyncio
import json

import psycopg
import pytest
from click.testing import CliRunner

from howdah.cli import main
from howdah.postgres import migrate
from howdah.postgres.database import Database
from howdah.postgres.embedded import server as embedded
from kit.roles import worker

SHOP = """
from dataclasses import dataclass
from howdah import Howdah

app = Howdah()

@app.event(version=2)
@dataclass
class OrderPlaced:
    total: int

@app.upcaster("OrderPlaced", version=1)
def total_of_old(data):
    return {"total": data["sum"]}
"""


@pytest.fixture
def events(howdah):
    """Four events in two streams."""
    for stream, kind, data in (
        ("Order-1", "Placed", '{"total":  5}'),
        ("Order-1", "Paid", "{}"),
        ("Cart-a-b", "Filled", '{"text": "two\\nlines"}'),
        ("Order-1", "Sent", "[1, 12345678901234567]"),
    ):
        assert howdah("log", "append", stream, kind, data).exit_code == 0


def positions(result) -> list[int]:
    assert result.exit_code == 0, result.output
    return [event["position"] for event in json.loads(result.stdout)]


def test_append_says_where_it_went(howdah):
    first = howdah(
        "log", "append", "Order-17", "OrderPlaced", '{"total": 5}', "--expect", "0", "--meta", '{"by": "me"}'
    )
    second = howdah("log", "append", "Order-17", "OrderPaid", "--version", "3", "--json")
    conflict = howdah("log", "append", "Order-17", "OrderPaid", "--expect", "1")

    assert first.stdout == "appended event 1; stream Order-17 is at version 1\n"
    assert json.loads(second.stdout) == {"stream": "Order-17", "version": 2, "position": 2}
    assert conflict.exit_code == 1
    assert conflict.stderr == "howdah: stream Order-17 is at version 2, not 1; read the stream again and decide anew\n"
    placed, paid = json.loads(howdah("log", "read", "--json").stdout)
    assert (placed["data"], placed["meta"], placed["schema_version"]) == ({"total": 5}, {"by": "me"}, 1)
    assert (paid["data"], paid["meta"], paid["schema_version"]) == ({}, None, 3)


def test_append_reads_stdin(howdah, database):
    result = CliRunner().invoke(
        main, ["log", "append", "Order-1", "Placed", "-", "--dsn", database.dsn], input='{"total": 5}'
    )

    assert result.exit_code == 0
    assert json.loads(howdah("log", "read", "--json").stdout)[0]["data"] == {"total": 5}


def test_append_with_an_app_checks_the_data_and_knows_the_newest_version(howdah, nowhere):
    (nowhere / "shop_of_events.py").write_text(SHOP)
    with_app = ("-a", "shop_of_events")

    made = howdah("log", "append", "Order-1", "OrderPlaced", '{"total": 5}', *with_app)
    old = howdah("log", "append", "Order-1", "OrderPlaced", '{"sum": 5}', "--version", "1", *with_app)
    wrong = howdah("log", "append", "Order-1", "OrderPlaced", '{"total": "five"}', *with_app)
    newer = howdah("log", "append", "Order-1", "OrderPlaced", '{"total": 5}', "--version", "3", *with_app)
    other = howdah("log", "append", "Order-1", "Unheard", '{"total": "five"}', *with_app)

    assert (made.exit_code, old.exit_code, other.exit_code) == (0, 0, 0)
    assert (wrong.exit_code, newer.exit_code) == (2, 2)
    assert "event 'OrderPlaced', schema version 2, cannot be read: Expected `int`, got `str`" in wrong.stderr
    assert "this code knows up to 2" in newer.stderr
    stored = json.loads(howdah("log", "read", "--json").stdout)
    assert [event["schema_version"] for event in stored] == [2, 1, 1]
    assert stored[1]["data"] == {"sum": 5}, "data is shown as it was stored"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("append", "Order", "Placed"), "a stream is named Type-id"),
        (("append", "Order-1", "Placed", "{"), "DATA-JSON is not JSON"),
        (("append", "Order-1", "Placed", "--meta", "[1]"), "--meta must be a JSON object"),
        (("append", "Order-1", "Placed", "--expect", "-1"), "'-1' is not a position"),
        (
            ("append", "Order-1", "Placed", "--version", "0"),
            "the schema version of an event must be an integer of at least 1",
        ),
        (("append", "Order-1", "Pla\nced"), "event type must be 1 to 100 printable characters"),
        (("append", "Order-1", "Placed", '{"a": "\\u0000"}'), "holds a NUL character"),
        (("append", "Order-1"), "Missing argument"),
        (("read", "--after", "99999999999999999999"), "is not a position"),
        (("read", "--stream", "Order-1", "--only", "Order"), "give --stream or --only, not both"),
        (("read", "--stream", "Order"), "a stream is named Type-id"),
        (("read", "-n", "0"), "Invalid value for '-n'"),
        (("exclusive", "maybe"), "Invalid value for 'on|off'"),
    ],
)
def test_mistakes_are_named_and_nothing_is_done(howdah, words, message):
    result = howdah("log", *words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert howdah("log", "read").stdout == "no such events\n"


def test_read_by_position(howdah, events):
    heading, first, *_, last = howdah("log", "read").stdout.splitlines()
    assert heading.split() == ["position", "at", "stream", "version", "type", "data"]
    assert first.split()[:1] + first.split()[3:] == ["1", "Order-1", "1", "Placed", '{"total":5}']
    assert last.endswith("[1,12345678901234567]")

    def read(*words):
        return positions(howdah("log", "read", "--json", *words))

    assert read() == [1, 2, 3, 4]
    assert read("--after", "2") == [3, 4]
    assert read("--after", "1", "--before", "4") == [2, 3]
    assert read("--backwards", "-n", "2") == [4, 3]
    assert read("--only", "Cart") == [3]
    assert read("--only", "Cart", "--only", "Order", "--type", "Paid", "--type", "Filled") == [2, 3]
    assert read("--stream", "Order-1", "--after", "1") == [2, 4]
    assert read("--stream", "Order-1", "--type", "Sent") == [4]
    assert read("--stream", "Cart-a-b", "--backwards") == [3]


def test_a_full_page_says_how_to_read_on(howdah, events):
    assert howdah("log", "read", "-n", "3").stderr == "more: --after 3\n"
    assert howdah("log", "read", "-n", "3", "--backwards").stderr == "more: --before 2\n"
    assert howdah("log", "read", "-n", "3", "--stream", "Order-1").stderr == "more: --after 3\n"
    assert howdah("log", "read", "-n", "5").stderr == ""
    assert howdah("log", "read", "-n", "3", "--json").stderr == ""


def test_status_of_a_quiet_log(howdah, events):
    result = howdah("log", "status")

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "head      4",
        "frontier  4",
        "gate      shared",
        "leader    none",
        "no append is open",
    ]


def test_status_shows_who_holds_the_frontier_without_secrets(howdah, events, direct):
    with psycopg.connect(worker(direct).dsn, application_name="slow importer") as conn:
        conn.execute("select howdah.append('Order-2', '{\"type\": \"Placed\"}')")
        conn.execute("select\n 1 as one, 'password=hunter2' as secret")
        howdah("log", "append", "Order-3", "Placed")

        result = howdah("log", "status")
        status = json.loads(howdah("log", "status", "--json").stdout)
        pid = conn.info.backend_pid

        assert positions(howdah("log", "read", "--json")) == [1, 2, 3, 4]
        conn.rollback()

    assert "head      6\nfrontier  4, 2 behind the head\n" in result.stdout
    row = result.stdout.splitlines()[-1]
    assert row.split()[:4] == ["4", str(pid), "slow", "importer"]
    assert "idle in transaction" in row
    assert "select 1 as one, 'password=***" in row
    assert "hunter2" not in result.stdout
    [holder] = status["holders"]
    assert (status["head"], status["frontier"], status["exclusive"], status["leader"]) == (6, 4, False, None)
    assert (holder["above"], holder["pid"], holder["application"]) == (4, pid, "slow importer")
    assert "hunter2" not in str(status)
    assert positions(howdah("log", "read", "--json")) == [1, 2, 3, 4, 6]


def test_status_names_a_prepared_transaction(nowhere):
    with embedded.start(settings={"max_prepared_transactions": "2"}) as server:
        asyncio.run(migrate.migrate(Database(server.dsn)))
        with psycopg.connect(server.dsn) as conn:
            conn.execute("select howdah.append('Order-2', '{\"type\": \"Placed\"}')")
            conn.execute("savepoint later; select howdah.append('Order-3', '{\"type\": \"Placed\"}')")
            conn.execute("prepare transaction 'left behind'")

        result = CliRunner().invoke(main, ["log", "status", "--dsn", server.dsn])

    assert "frontier  0, 2 behind the head\n" in result.stdout
    assert result.stdout.splitlines()[-1].split() == ["0", "-", "-", "-", "0s", "-", "left", "behind", "-"]


def test_exclusive_says_what_it_costs(howdah, events):
    on = howdah("log", "exclusive", "on")
    between = howdah("log", "status")
    appended = howdah("log", "append", "Order-1", "Seen")
    off = howdah("log", "exclusive", "off")

    assert on.stdout == "appends go one at a time; many small ones at once run at about a third of their rate\n"
    assert "gate      exclusive: one append at a time\n" in between.stdout
    assert appended.exit_code == 0
    assert off.stdout == "appends go side by side\n"
    assert "gate      shared\n" in howdah("log", "status").stdout


@pytest.mark.parametrize("verb", ["status", "read", "append", "exclusive"])
def test_help_shows_an_example_and_a_missing_schema_exits_4(howdah, verb):
    words = {"append": ["Order-1", "Placed"], "exclusive": ["on"]}.get(verb, [])

    assert f"\n  howdah log {verb}" in howdah("log", verb, "--help").stdout
    assert howdah("log", verb, *words, "--schema", "missing").exit_code == 4
