"""`howdah consumers`, with a worker in a process of its own."""

from __future__ import annotations

import json
import re
import signal
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from howdah.cli import main
from kit.command import eventually


def test_none_are_said_to_be_none(howdah):
    result = howdah("consumers")

    assert (result.exit_code, result.stdout) == (
        0,
        "no consumers yet; declare one with app.consumer(…), and run a worker\n",
    )
    assert json.loads(howdah("consumers", "--json").stdout) == []


def test_the_list_has_every_part_with_its_owner(howdah, shop, standing):
    shop.append("{}", "{}", '{"bad": 1}')
    with shop.worker() as worker:
        eventually(lambda: standing("mails")[0]["position"] == 3, why=lambda: worker.output)
        eventually(lambda: standing("totals")[0]["state"] == "halted", why=lambda: worker.output)
        eventually(lambda: all(part["state"] == "running" for part in standing("wide")), why=lambda: worker.output)
        result = howdah("consumers")

        heading, mails, totals, *wide = result.stdout.splitlines()
        assert heading.split() == [
            *("name", "state", "node", "position", "lag"),
            *("lag", "time", "rate", "parked", "last", "error"),
        ]
        name, state, node, position, lag, lag_time, _rate, parked, error = mails.split()
        assert (name, state, position, lag, lag_time, parked, error) == ("mails", "running", "3", "0", "-", "1", "-")
        assert node.endswith(f":{worker.process.pid}")
        assert totals.split()[:2] == ["totals", "halted"]
        assert totals.split()[3:5] == ["2", "1"]
        assert totals.endswith("at 3: ValueError: cannot\\x1b[31m add 3, token=***")
        assert [line.split()[0] for line in wide] == ["wide#0", "wide#1", "wide#2"]
        rows = json.loads(howdah("consumers", "--json").stdout)
        assert [(row["consumer"], row["part"]) for row in rows][2:] == [("wide", 0), ("wide", 1), ("wide", 2)]
        assert [row["name"] for row in rows][2:] == ["wide#0", "wide#1", "wide#2"], "as the table names them"
        assert rows[1]["traceback"].startswith("Traceback")

    shop.append()
    assert howdah("consumers").stdout.splitlines()[1].split()[:5:4] == ["mails", "1"], "a killed node is behind"


@pytest.mark.parametrize("how", ["lease", "advisory"])
def test_the_leader_is_chosen_as_the_worker_was_told(howdah, shop, how):
    locks = "select count(*) from pg_locks join pg_stat_activity using (pid) where application_name = 'howdah leader'"

    with shop.worker("--leader", how) as worker:
        eventually(
            lambda: re.search(rf":{worker.process.pid} \(node \d+\) since ", howdah("log", "status").stdout),
            why=lambda: worker.output,
        )
        held = shop.conn.execute(f"{locks} and locktype = 'advisory' and mode = 'ExclusiveLock'").fetchone()

    assert held == (1 if how == "advisory" else 0,)


def test_show_tells_everything(howdah, shop):
    shop.append("{}", '{"bad": 1}')
    shop.catch_up()

    result = howdah("consumers", "show", "totals")

    assert result.exit_code == 0
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert ["state", "halted"] in lines
    assert ["only", "Order"] in lines
    assert ["error", "position", "2"] in [line.split() for line in result.stdout.splitlines()]
    assert "raise ValueError" in result.stdout
    assert "\x1b" not in result.stdout
    assert result.stdout.count("traceback") == 0
    assert howdah("consumers", "show", "wide").stdout.count("\n\n") == 2


def test_a_paused_consumer_rests_until_it_is_resumed(howdah, shop, standing):
    with shop.worker() as worker:
        paused = howdah("consumers", "pause", "totals", "--by", "ada")
        row = standing("totals")[0]
        shop.append()
        eventually(lambda: standing("mails")[0]["position"] == 1, why=lambda: worker.output)
        late = howdah("consumers", "wait", "totals", "--timeout", "100ms")
        resumed = howdah("consumers", "resume", "totals")
        waited = howdah("consumers", "wait", "totals")
        again = howdah("consumers", "resume", "totals")

    assert paused.stdout == "consumer 'totals' is paused\n"
    assert (row["state"], row["paused_by"]) == ("paused", "ada")
    assert late.exit_code == 1
    assert (
        "consumer 'totals' is at 0 and is paused, not at 1, after 0.1 s; consumer 'totals' is paused; " in late.stderr
    )
    assert "`howdah consumers resume totals` lets it go on" in late.stderr
    assert (resumed.exit_code, resumed.stdout) == (0, "consumer 'totals' resumed\n")
    assert waited.stdout == "consumer 'totals' has seen everything up to position 1\n"
    assert (again.exit_code, again.stdout) == (1, "consumer 'totals' was neither paused nor halted\n")
    assert shop.seen("totals") == [1]


def test_a_halted_consumer_goes_on_behind_the_event_that_is_skipped(howdah, shop):
    shop.append("{}", '{"bad": 1}', "{}")
    shop.catch_up()

    halted = howdah("consumers", "wait", "totals", "--position", "3")
    unsure = howdah("consumers", "skip", "totals")
    other = howdah("consumers", "skip", "totals", "--event", "1", "--yes")
    skipped = howdah("consumers", "skip", "totals", "--event", "2", "--yes")
    shop.catch_up()
    none = howdah("consumers", "skip", "totals", "--yes")

    assert halted.exit_code == 1
    assert halted.stderr.startswith("howdah: consumer 'totals' is halted at 1: ValueError: cannot")
    assert (unsure.exit_code, "to leave out event 2 for consumer 'totals', add --yes" in unsure.stderr) == (2, True)
    assert (other.exit_code, "no longer fails on event 1" in other.stderr) == (2, True)
    assert skipped.stdout == "consumer 'totals' leaves out event 2\n"
    assert howdah("consumers", "wait", "totals").exit_code == 0
    assert shop.seen("totals") == [1, 3]
    assert none.exit_code == 2
    assert "failed on no event" in none.stderr


def test_a_halted_consumer_tries_again_when_resumed(howdah, shop):
    shop.append('{"bad": 1}')
    shop.catch_up()
    shop.conn.execute("insert into mended default values")

    assert howdah("consumers", "resume", "totals").exit_code == 0
    shop.catch_up()
    assert shop.seen("totals") == [1]


def test_reset_moves_to_a_place(howdah, shop, standing):
    shop.append("{}", "{}")
    between = datetime.now(UTC)
    shop.append("{}")
    shop.catch_up()

    def reset(name: str, to: str, *more: str) -> str:
        result = howdah("consumers", "reset", name, "--to", to, "--yes", *more)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert reset("totals", "beginning") == "consumer 'totals' continues after position 0\n"
    assert reset("totals", "end") == "consumer 'totals' continues after position 3\n"
    assert reset("totals", "1") == "consumer 'totals' continues after position 1\n"
    assert (
        reset("totals", (between - timedelta(days=1)).isoformat()) == "consumer 'totals' continues after position 0\n"
    )
    assert reset("totals", between.isoformat()) == "consumer 'totals' continues after position 2\n"
    assert reset("wide", "1", "--part", "2") == "part 2 of consumer 'wide' continues after position 1\n"
    assert [part["position"] for part in standing("wide")] == [3, 3, 1]
    shop.catch_up()
    assert shop.seen("totals") == [1, 2, 3, 3]


def test_a_reset_needs_a_yes(howdah, shop, standing):
    shop.append()
    shop.catch_up()

    result = howdah("consumers", "reset", "totals", "--to", "beginning")

    assert result.exit_code == 2
    assert "to reset consumer 'totals' to the beginning, add --yes" in result.stderr
    assert standing("totals")[0]["position"] == 1


def test_a_consumer_is_forgotten_when_no_live_node_has_it(howdah, shop):
    with shop.worker() as worker:
        refused = howdah("consumers", "forget", "totals", "--yes")
        worker.send(signal.SIGTERM)
        assert worker.ends() == 0
    unasked = howdah("consumers", "forget", "totals")
    forgotten = howdah("consumers", "forget", "totals", "--yes")

    assert refused.exit_code == 2
    assert "still in the code of a live node" in refused.stderr
    assert unasked.exit_code == 2
    assert "to forget consumer 'totals', its checkpoint and what it parked, add --yes" in unasked.stderr
    assert forgotten.stdout == "consumer 'totals' is forgotten\n"
    assert howdah("consumers", "show", "totals").exit_code == 2


def test_switch_runs_the_statements_when_the_new_one_has_caught_up(howdah, shop, nowhere, standing):
    shop.append("{}", "{}")
    shop.catch_up()
    (nowhere / "rename.sql").write_text("create table pointer ();\ninsert into pointer default values;")
    (nowhere / "wrong.sql").write_text("create table pointer (); select * from no_such_table")
    (nowhere / "empty.sql").write_text(" \n")

    def switch(file: str, **more: str):
        words = ["consumers", "switch", "totals", "mails", "--sql", file, "--dsn", shop.dsn]
        return CliRunner().invoke(main, words, **more)

    howdah("consumers", "reset", "mails", "--to", "1", "--yes")
    behind = switch("rename.sql")
    howdah("consumers", "reset", "mails", "--to", "end", "--yes")
    wrong, empty = switch("wrong.sql"), switch("empty.sql")
    before = standing("totals")[0]["state"]
    done = switch("rename.sql")
    piped = switch("-", input="drop table pointer")

    assert behind.exit_code == 1
    assert "consumer 'mails' is at 1 and 'totals' already at 2; wait until it has caught up" in behind.stderr
    assert wrong.exit_code == 1
    assert 'the statements failed, so nothing was changed: relation "no_such_table" does not exist' in wrong.stderr
    assert (empty.exit_code, before) == (2, "unassigned")
    assert (done.exit_code, done.stdout) == (0, "switched: consumer 'mails' is at position 2, 'totals' is paused\n")
    assert standing("totals")[0]["paused_by"] == "switch to mails"
    assert piped.exit_code == 0
    assert shop.conn.execute("select to_regclass('pointer')").fetchone() == (None,)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "nobody"), "there is no consumer 'nobody'; `howdah consumers` lists them"),
        (("pause", "nobody"), "there is no consumer 'nobody'"),
        (("resume", "nobody"), "there is no consumer 'nobody'"),
        (("skip", "nobody"), "there is no consumer 'nobody'"),
        (("wait", "nobody"), "there is no consumer 'nobody'"),
        (("forget", "nobody", "--yes"), "there is no consumer 'nobody'"),
        (("replay", "nobody", "--yes"), "there is no consumer 'nobody'"),
        (("reset", "nobody", "--to", "end", "--yes"), "there is no consumer 'nobody'"),
        (("reset", "nobody", "--to", "end", "--yes", "--part", "3"), "there is no part 3 of consumer 'nobody'"),
        (("reset", "nobody", "--to", "7", "--yes"), "cannot reset to 7; give 'beginning', 'end'"),
        (("reset", "nobody", "--to", "soon"), "'soon' is no place in the log"),
        (("reset", "nobody", "--to", "2030-01-31"), "'2030-01-31' is no place in the log"),
        (("reset", "nobody"), "Missing option '--to'"),
        (("wait", "nobody", "--position", "x"), "'x' is not a position"),
        (("switch", "nobody", "other", "--sql", "nowhere.sql"), "No such file"),
        (("parked", "list", "nobody"), "there is no consumer 'nobody'"),
        (("parked", "retry", "nobody", "1"), "there is no consumer 'nobody'"),
        (("parked", "retry", "nobody"), "say which events: positions such as 5 7 10-20, or --all"),
        (("parked", "drop", "nobody", "1", "--all"), "say which events"),
        (("parked", "drop", "nobody", "x"), "'x' is not a position; write 7 or 10-20"),
        (("--json", "show", "nobody"), "options go behind the verb"),
        (("lose", "nobody"), "No such command 'lose'"),
    ],
)
def test_mistakes_are_named(howdah, words, message):
    result = howdah("consumers", *words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


VERBS = [
    *("show", "pause", "resume", "reset", "replay", "wait", "skip", "forget", "switch"),
    *("parked list", "parked retry", "parked drop"),
]


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_an_example(howdah, verb):
    assert f"\n  howdah consumers {verb} order-totals" in howdah("consumers", *verb.split(), "--help").stdout


def test_a_missing_schema_exits_4(howdah):
    for words in ((), ("show", "x"), ("wait", "x"), ("replay", "x", "--yes"), ("parked", "list")):
        assert howdah("consumers", *words, "--schema", "missing").exit_code == 4
