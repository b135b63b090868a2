"""`howdah table`."""

from __future__ import annotations

import json

import psycopg
import pytest

APP = """
from howdah import Columns, Howdah

app = Howdah()
uploads = app.table(
    "uploads", name="conversions", columns=Columns(state="status"), order_by=["priority desc"], notify=True
)
"""


@pytest.fixture
def run_sql(database):
    """Runs a script as `psql` would: statement by statement."""

    def run(script: str, fetch: bool = False):
        with psycopg.connect(database.dsn, autocommit=True) as conn:
            cursor = conn.execute(script)
            return cursor.fetchall() if fetch else None

    return run


@pytest.fixture
def uploads(howdah, run_sql):
    """A table with a row in each state: queued, processing, errored, failed, completed, canceled."""
    run_sql(howdah("table", "create", "uploads").output)
    run_sql(
        "insert into uploads (state) select unnest(array"
        "['queued', 'processing', 'errored', 'failed', 'completed', 'canceled'])"
    )


def test_a_table_as_printed_passes_the_check(howdah, run_sql):
    run_sql(howdah("table", "create", "uploads").output)

    result = howdah("table", "check", "uploads")
    assert (result.exit_code, result.stdout) == (0, "table public.uploads is ready; a claim reads uploads_waiting\n")
    assert howdah("table", "check", "uploads", "--sql").output == "-- nothing is missing in table public.uploads\n"


def test_what_is_missing_is_said_and_the_statements_add_it(howdah, run_sql, direct):
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        conn.execute('create schema "o\'dd"; grant all on schema "o\'dd" to public')
    run_sql('create table "o\'dd"."up ""loads\n; drop table x" (id int primary key)')
    name = '"o\'dd"."up ""loads\n; drop table x"'

    result = howdah("table", "check", name)
    assert result.exit_code == 1
    assert "has no column 'state'\n  → add it, or name another with Columns(state=…)" in result.stdout
    assert "has no column 'lease_token'" in result.stdout
    assert "no index of table" in result.stdout
    assert json.loads(howdah("table", "check", name, "--json").output)["findings"][0]["where"] == "column 'state'"

    script = howdah("table", "check", name, "--sql", "--trigger")
    assert script.exit_code == 0
    for _ in range(2):
        run_sql(script.output)
    assert howdah("table", "check", name).exit_code == 0


def test_what_only_people_can_mend_is_a_remark_and_exit_code_1(howdah, run_sql):
    run_sql(howdah("table", "create", "uploads").output)
    run_sql("alter table uploads alter execution_logs type text using null")

    script = howdah("table", "check", "uploads", "--sql")
    assert script.exit_code == 1
    assert script.output.startswith("-- column 'execution_logs' of table public.uploads is text, it must be json[]")


def test_a_missing_table_is_printed_whole(howdah, run_sql):
    assert "table uploads does not exist" in howdah("table", "check", "uploads").output
    run_sql(howdah("table", "check", "uploads", "--sql").output)
    assert howdah("table", "check", "uploads").exit_code == 0
    result = howdah("table", "check", "other", "--trigger")
    assert (result.exit_code, "create it first" in result.output) == (2, True)


@pytest.mark.parametrize("name", ["conversions", "uploads"])
def test_the_options_of_the_app_count(howdah, nowhere, run_sql, name):
    shop = f"shop_of_{name}"
    (nowhere / f"{shop}.py").write_text(APP)
    printed = howdah("table", "create", name, "-a", shop).output
    assert '"status" text' in printed
    assert '("priority" desc, "id") where "status" in' in printed
    run_sql(printed)

    result = howdah("table", "check", name, "-a", shop)
    assert (result.exit_code, "has no trigger" in result.output) == (1, True)
    run_sql(howdah("table", "check", name, "-a", shop, "--sql").output)
    assert howdah("table", "check", name, "-a", shop).exit_code == 0
    assert "no column 'state'" in howdah("table", "check", "uploads").output
    assert "the app has no table 'public.uploads'" in howdah("table", "check", "public.uploads", "-a", shop).stderr


def test_status_counts_by_state(howdah, uploads):
    result = howdah("table", "status", "uploads")
    assert result.exit_code == 0
    assert result.output.splitlines()[:3] == ["state       rows", "queued      1", "processing  1"]
    assert "due now: 2, the oldest waits " in result.output

    parsed = json.loads(howdah("table", "status", "uploads", "--json").output)
    assert parsed["states"]["failed"] == {"rows": 1, "exact": True}
    assert (parsed["table"], parsed["due"]) == ("public.uploads", 2)


def test_rows_are_listed_newest_first(howdah, uploads):
    assert [row["id"] for row in json.loads(howdah("table", "list", "uploads", "--json").output)] == [6, 5, 4, 3, 2, 1]
    page = json.loads(howdah("table", "list", "uploads", "--before", "5", "--limit", "2", "--json").output)
    assert [row["id"] for row in page] == [4, 3]
    assert "errored" in howdah("table", "list", "uploads", "--state", "errored").output
    assert howdah("table", "list", "uploads", "--state", "done").exit_code == 2


def test_acting_says_what_became_of_each_row(howdah, uploads, run_sql):
    result = howdah("table", "retry", "uploads", "3-5", "99")
    assert result.exit_code == 1
    assert result.output == ("put back 2 of 4 rows\nid  left alone\n 5  it is completed\n99  there is no such row\n")
    assert howdah("table", "requeue", "uploads", "5", "--after", "10m").output == "requeued 1 of 1 rows\n"
    result = howdah("table", "cancel", "uploads", "1-3")
    assert (result.exit_code, result.output) == (0, "canceled 3 of 3 rows, 1 of them by their next heartbeat\n")
    parsed = json.loads(howdah("table", "cancel", "uploads", "1", "--json").output)
    assert parsed == [{"id": 1, "was": "canceled", "result": "left"}]

    states = run_sql("select state, process_after is not null from uploads order by id", fetch=True)
    assert [state for state, _ in states] == ["canceled", "processing", "canceled", "queued", "queued", "canceled"]
    assert states[4][1]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["check", "not a; name"], 2, "does not name a table"),
        (["retry", "uploads", "x"], 2, "'x' is not a job id"),
        (["retry", "uploads"], 2, "Missing argument"),
        (["status", "nowhere"], 2, "table nowhere does not exist"),
        (["requeue", "uploads", "1", "--after", "soon"], 2, "Invalid value for '--after'"),
    ],
)
def test_mistakes_are_one_line(howdah, uploads, words, code, text):
    result = howdah("table", *words)
    assert (result.exit_code, text in result.output) == (code, True), result.output


def test_a_table_that_cannot_be_worked_on_is_refused(howdah, run_sql):
    run_sql("create table uploads (id int primary key)")

    result = howdah("table", "status", "uploads")
    assert result.exit_code == 2
    assert "table public.uploads cannot be worked on" in result.output


@pytest.mark.parametrize("verb", ["check", "create", "status", "list", "retry", "requeue", "cancel"])
def test_help_shows_an_example(howdah, verb):
    assert f"howdah table {verb} app.uploads" in howdah("table", verb, "--help").output
