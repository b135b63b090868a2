"""What cannot work is refused when the node starts, with the column, the table and the fix."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from howdah import Backoff, Budget, Columns, ConfigError, Where
from kit.node import drain
from table.ddl import ddl

pytestmark = pytest.mark.anyio


async def refused(app, *words, table="uploads", **options):
    made = app.table(table, **options)

    @made.handler
    async def execute(record) -> None: ...

    with pytest.raises(ConfigError) as caught:
        await drain(app)
    for word in words:
        assert word in str(caught.value)


async def test_a_table_that_is_not_there(app, conn):
    await refused(app, "table app.uploads does not exist", table="app.uploads")


async def test_a_view_that_is_not_there(app, uploads):
    await refused(app, "view nowhere does not exist", view="nowhere")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "drop column lease_token",
            ["has no column 'lease_token'", 'run `alter table "public"."uploads" add column "lease_token" bigint`'],
        ),
        (
            "alter column process_after type timestamp",
            ["column 'process_after' of table public.uploads is timestamp", "type timestamptz`"],
        ),
        ("alter column num_failures type text", ["must be smallint or integer or bigint", "type integer`"]),
        ("alter column execution_logs type text", ["must be json[] or jsonb[]", "type json[]`"]),
        ("alter column failure_message type varchar(20)", ["limited in length", "type text`"]),
        ("alter column started_at set not null", ["drop not null"]),
        ("drop constraint uploads_pkey", ["column 'id' of table public.uploads is not unique", "add primary key"]),
        (
            "drop column cancel, add column cancel boolean generated always as (n > 5) stored",
            ["'cancel' of table public.uploads is generated"],
        ),
    ],
)
async def test_a_column_that_does_not_do(app, uploads, change, words):
    await uploads.execute(f"alter table uploads {change}")
    await refused(app, *words)


async def test_everything_wrong_is_said_at_once(app, conn):
    await conn.execute("create table uploads (id bigint primary key, status text)")
    await refused(
        app, "'cancel'", "'lease_token'", "'zustand' (for state)", "Columns(state=…)", columns=Columns(state="zustand")
    )


async def test_an_enum_without_all_states(app, conn):
    await conn.execute("create type st as enum ('queued', 'processing', 'failed', 'completed', 'canceled')")
    await conn.execute(ddl().replace("text not null default 'queued'", "st not null default 'queued'"))
    await refused(app, "has no errored", 'alter type "public"."st" add value \'errored\'')


async def test_a_view_in_place_of_a_table(app, uploads):
    await uploads.execute("create view v as select * from uploads")
    await refused(app, "public.v is not a table; name the base table", table="v")


async def test_a_condition_that_the_server_does_not_understand(app, uploads):
    await refused(app, "where Where('kinds = $1'", 'column "kinds" does not exist', where=Where("kinds = $1", "x"))


async def test_an_order_by_a_column_that_is_not_there(app, uploads):
    await refused(app, "no column 'prio' to order by", order_by=["prio desc"])


@dataclass
class Odd:
    id: int
    owner: str


async def test_a_record_with_a_field_that_is_no_column(app, uploads):
    await refused(app, "field 'owner'", "public.uploads has no such column", "expressions={'owner'", record=Odd)


async def test_an_expression_that_the_server_does_not_understand(app, uploads):
    await refused(app, "expressions does not work", record=Odd, expressions={"owner": "nobody(1)"})


async def test_a_budget_without_its_column(app, uploads):
    await refused(app, "no column 'ram' for memory of its budget", budget=Budget(memory=5, cost={"memory": "ram"}))


async def test_a_budget_of_words(app, uploads):
    await refused(app, "column 'kind'", "needs a number", budget=Budget(memory=5, cost={"memory": "kind"}))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_attempts": 0}, "max_attempts of table 'uploads' must be above zero, got 0"),
        ({"poll": 0}, "poll"),
        ({"stalled_after": -1}, "stalled_after"),
        ({"slots": 0}, "slots"),
        ({"max_resets": -1}, "max_resets"),
        ({"heartbeat": 20}, "at least two heartbeats"),
        ({"retry": Backoff(), "retry_after": 5}, "set only one of them"),
        ({"order_by": "id"}, "must be a list"),
        ({"where": "kind = 'zip'"}, "must be Where"),
        ({"columns": {"state": "status"}}, "must be Columns"),
        ({"record": int}, "not a dataclass"),
        ({"record": 5}, "a class or a function"),
        ({"record": Odd, "expressions": {"other": "1"}}, "no field 'other'"),
        ({"expressions": {"other": "1"}}, "no record"),
    ],
)
def test_options_that_cannot_be(app, options, words):
    with pytest.raises(ConfigError, match=words):
        app.table("uploads", **options)


def test_two_columns_cannot_be_one():
    with pytest.raises(ConfigError, match="both named 'at'"):
        Columns(queued_at="at", started_at="at")
