"""Events through connections of other libraries: in the caller's transaction, or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
import sqlalchemy
from django.db import connections
from test_borrowed_connections import TEXTS, Undo
from ways import WAYS, AsyncWay, Way, engine_for

from howdah import ConfigError, EventError, Howdah, NewEvent, NoEvents, StreamConflict, Task, Transaction, telemetry
from howdah.postgres.database import Database
from howdah.postgres.sql import identifier

HOSTILE = ['we"ird; drop--', ":stream :expect::text", "50% %(other)s it's {schema} $1 ünïcode"]
FRONTIER = "select head, safe, held from howdah.frontier()"
TRACE = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


@dataclass(frozen=True)
class Said:
    text: str


def events(look: Any) -> list[Any]:
    return list(look.execute("select * from howdah.event order by position"))


def test_a_commit_appends(
    way: Way | AsyncWay, app: Howdah, task: Task[[str], None], look: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "trace_context", lambda: TRACE)
    both = [Said("hello"), NewEvent(type="Heard", data={"by": 2}, meta={"via": "air"})]
    with way.transaction():
        way.enqueue(task, "hello")
        made = way.append(app, "Talk-1", both, correlation="request 7", causation="click 3")
        assert events(look) == []
        assert look.execute(FRONTIER).fetchone() == (made.position, made.position - 2, True)

    said, heard = events(look)
    assert (made.version, made.position) == (2, heard.position)
    assert (said.stream_type, said.stream_id, said.version, said.type) == ("Talk", "1", 1, "Said")
    assert (said.data, said.meta, said.schema_version) == ({"text": "hello"}, None, 1)
    assert (heard.version, heard.type, heard.data, heard.meta) == (2, "Heard", {"by": 2}, {"via": "air"})
    assert {(each.correlation, each.causation, each.trace) for each in (said, heard)} == {
        ("request 7", "click 3", TRACE)
    }
    assert look.execute("select distinct e.xmin = j.xmin from howdah.event e, howdah.job j").fetchall() == [(True,)]
    assert look.execute(FRONTIER).fetchone() == (made.position, made.position, False)


def test_a_rollback_leaves_no_event_and_no_hole_in_the_stream(way: Way | AsyncWay, app: Howdah, look: Any) -> None:
    with suppress(Undo), way.transaction():
        way.append(app, "Talk-1", Said("never"))
        raise Undo
    assert events(look) == []

    with way.transaction():
        assert way.append(app, "Talk-1", Said("hello"), expect=0).version == 1
    assert [event.data for event in events(look)] == [{"text": "hello"}]


def test_another_version_than_expected_is_a_conflict(way: Way | AsyncWay, app: Howdah, look: Any) -> None:
    with way.transaction():
        way.append(app, "Talk-1", [Said("one"), Said("two")], expect=0)

    for expected in (0, 1, 3):
        with pytest.raises(StreamConflict) as caught, way.transaction():
            way.append(app, "Talk-1", Said("never"), expect=expected)
        assert str(caught.value).startswith(f"stream Talk-1 is at version 2, not {expected}; read the stream again")

    with way.transaction():
        assert way.append(app, "Talk-1", Said("three"), expect=2).version == 3
        assert way.append(app, "Talk-1", Said("four")).version == 4
    assert [event.data["text"] for event in events(look)] == ["one", "two", "three", "four"]


def test_a_conflict_takes_the_rows_of_its_transaction_along(way: Way | AsyncWay, app: Howdah, look: Any) -> None:
    with suppress(StreamConflict), way.transaction():
        way.append(app, "Talk-1", Said("with its transaction"))
        way.append(app, "Talk-2", Said("never"), expect=7)

    assert events(look) == []


def test_no_events_are_refused_and_the_transaction_goes_on(way: Way | AsyncWay, app: Howdah, look: Any) -> None:
    with way.transaction():
        way.append(app, "Talk-1", Said("one"))
        with pytest.raises(NoEvents, match="no events were given"):
            way.append(app, "Talk-1", [])
        with pytest.raises(EventError, match="a stream is named Type-id"):
            way.append(app, "Talk", Said("never"))
        with pytest.raises(EventError, match="expect is None"):
            way.append(app, "Talk-1", Said("never"), expect=-1)
        with pytest.raises(EventError, match="object cannot be an event"):
            way.append(app, "Talk-1", object())
        way.append(app, "Talk-1", Said("two"))

    assert [event.data["text"] for event in events(look)] == ["one", "two"]


def test_texts_arrive_byte_for_byte(way: Way | AsyncWay, app: Howdah, look: Any) -> None:
    with way.transaction():
        for text in TEXTS:
            way.append(app, f"Talk-{text.strip() or 1}".replace("\t", " ").replace("\n", " "), Said(text))

    assert [event.data["text"] for event in events(look)] == TEXTS
    assert events(look)[2].stream_id == TEXTS[2]


@pytest.mark.parametrize("schema", HOSTILE)
def test_any_name_of_a_schema_works(schema: str, direct: Database, look: Any) -> None:
    app = Howdah(direct.dsn, schema=schema)
    asyncio.run(app.migrate())

    for name, open_way in WAYS.items():
        with open_way(direct.dsn) as way, way.transaction():
            way.append(app, f"Way-{name}", Said(name))

    rows = look.execute(f"select data ->> 'text' as text from {identifier(schema)}.event order by position")
    assert [row.text for row in rows] == list(WAYS)
    assert events(look) == []


def test_the_wrong_call_says_which_is_right(way: Way | AsyncWay, app: Howdah, look: Any) -> None:
    name = type(way.conn).__name__

    if isinstance(way, AsyncWay):
        with pytest.raises(ConfigError, match=rf"^{name} is asynchronous; await append\("):
            app.log.append_sync("Talk-1", Said("never"), conn=way.conn)
    else:
        with pytest.raises(ConfigError, match=f"^{name} is synchronous; call append_sync"):
            asyncio.run(app.log.append("Talk-1", Said("never"), conn=way.conn))

    with pytest.raises(EventError, match="append_many needs a connection of asyncpg, got"):
        asyncio.run(app.log.append_many([("Talk-1", Said("never"))], conn=way.conn))
    assert events(look) == []


# ---------------------------------------------------------------- not through a way


def test_without_a_connection_it_commits_by_itself(app: Howdah, look: Any) -> None:
    made = app.log.append_sync("Talk-1", [Said("one"), Said("two")], expect=0, correlation="request 7")
    assert made.version == 2
    with pytest.raises(StreamConflict, match="stream Talk-1 is at version 2, not 0"):
        app.log.append_sync("Talk-1", Said("never"), expect=0)
    with pytest.raises(NoEvents):
        app.log.append_sync("Talk-1", [])

    assert [(event.version, event.correlation) for event in events(look)] == [(1, "request 7"), (2, "request 7")]


@pytest.mark.anyio
async def test_synchronous_code_below_an_event_loop_appends_too(app: Howdah, look: Any) -> None:
    made = await asyncio.to_thread(app.log.append_sync, "Talk-1", Said("from a thread"))
    await app.close()

    assert [event.position for event in events(look)] == [made.position]


@pytest.mark.anyio
async def test_our_own_driver_is_awaited(app: Howdah, conn: Any, look: Any) -> None:
    for wrong in (conn, Transaction(conn)):
        with pytest.raises(ConfigError, match=rf"^{type(wrong).__name__} is asynchronous; await append\("):
            app.log.append_sync("Talk-1", Said("never"), conn=wrong)

    transaction = conn.transaction()
    await transaction.start()
    await app.log.append("Talk-1", Said("one"), conn=conn)
    await app.log.append("Talk-1", Said("two"), conn=Transaction(conn))
    assert events(look) == []
    await transaction.commit()

    assert [event.data["text"] for event in events(look)] == ["one", "two"]


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (object(), "builtins.object"),
        ("default", "builtins.str"),
        (sqlite3.connect(":memory:"), "sqlite3.Connection"),
        (engine_for(""), "sqlalchemy.engine.base.Engine"),
        (psycopg.sql.SQL("select 1"), "psycopg.sql.SQL"),
    ],
    ids=["object", "text", "sqlite", "engine", "statement"],
)
def test_what_is_no_connection_is_named(wrong: Any, name: str, app: Howdah) -> None:
    with pytest.raises(ConfigError, match=rf"^cannot append through a {name}; give an asyncpg, psycopg,"):
        app.log.append_sync("Talk-1", Said("never"), conn=wrong)
    with pytest.raises(ConfigError, match=rf"^cannot append through a {name}; give an asyncpg, psycopg,"):
        asyncio.run(app.log.append("Talk-1", Said("never"), conn=wrong))


def test_another_database_is_refused(app: Howdah) -> None:
    with sqlalchemy.create_engine("sqlite://").connect() as conn, pytest.raises(ConfigError, match="sqlite"):
        app.log.append_sync("Talk-1", Said("never"), conn=conn)
    with pytest.raises(ConfigError, match="database 'lite' is sqlite"):
        app.log.append_sync("Talk-1", Said("never"), conn=connections["lite"])


def test_errors_of_the_driver_reach_the_caller_as_they_are(app: Howdah, direct: Database) -> None:
    with psycopg.connect(direct.dsn) as conn:
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute("select 1 / 0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            app.log.append_sync("Talk-1", Said("never"), conn=conn)


def test_a_savepoint_survives_a_conflict(app: Howdah, direct: Database, look: Any) -> None:
    with psycopg.connect(direct.dsn) as conn, conn.transaction():
        app.log.append_sync("Talk-1", Said("one"), conn=conn)
        with suppress(StreamConflict), conn.transaction():
            app.log.append_sync("Talk-1", Said("never"), expect=0, conn=conn)
        app.log.append_sync("Talk-1", Said("two"), expect=1, conn=conn)

    assert [event.data["text"] for event in events(look)] == ["one", "two"]
