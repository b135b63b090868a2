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
from foreign_connections import FOREIGN_CONNECTIONS, AsyncForeignConnection, ForeignConnection, engine_for
from test_borrowed_connections import TEXTS, Undo

from howdah import ConfigError, EventError, Howdah, NewEvent, NoEvents, StreamConflict, Task, Transaction, telemetry
from howdah.postgres.database import Database
from howdah.postgres.sql import identifier

HOSTILE = ['we"ird; drop--', ":stream :expect::text", "50% %(other)s it's {schema} $1 ünïcode"]
FRONTIER = "select head, safe, held from howdah.frontier()"
TRACE = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


@dataclass(frozen=True)
class Said:
    text: str


def events(observer: Any) -> list[Any]:
    return list(observer.execute("select * from howdah.event order by position"))


def test_a_commit_appends(
    foreign: ForeignConnection | AsyncForeignConnection,
    app: Howdah,
    task: Task[[str], None],
    observer: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(telemetry, "trace_context", lambda: TRACE)
    both = [Said("hello"), NewEvent(type="Heard", data={"by": 2}, meta={"via": "air"})]
    with foreign.transaction():
        foreign.enqueue(task, "hello")
        made = foreign.append(app, "Talk-1", both, correlation="request 7", causation="click 3")
        assert events(observer) == []
        assert observer.execute(FRONTIER).fetchone() == (made.position, made.position - 2, True)

    first, heard = events(observer)
    assert (made.version, made.position) == (2, heard.position)
    assert (first.stream_type, first.stream_id, first.version, first.type) == ("Talk", "1", 1, "Said")
    assert (first.data, first.meta, first.schema_version) == ({"text": "hello"}, None, 1)
    assert (heard.version, heard.type, heard.data, heard.meta) == (2, "Heard", {"by": 2}, {"via": "air"})
    assert {(each.correlation, each.causation, each.trace) for each in (first, heard)} == {
        ("request 7", "click 3", TRACE)
    }
    assert observer.execute("select distinct e.xmin = j.xmin from howdah.event e, howdah.job j").fetchall() == [(True,)]
    assert observer.execute(FRONTIER).fetchone() == (made.position, made.position, False)


def test_a_rollback_leaves_no_event_and_no_hole_in_the_stream(
    foreign: ForeignConnection | AsyncForeignConnection, app: Howdah, observer: Any
) -> None:
    with suppress(Undo), foreign.transaction():
        foreign.append(app, "Talk-1", Said("never"))
        raise Undo
    assert events(observer) == []

    with foreign.transaction():
        assert foreign.append(app, "Talk-1", Said("hello"), expect=0).version == 1
    assert [event.data for event in events(observer)] == [{"text": "hello"}]


def test_another_version_than_expected_is_a_conflict(
    foreign: ForeignConnection | AsyncForeignConnection, app: Howdah, observer: Any
) -> None:
    with foreign.transaction():
        foreign.append(app, "Talk-1", [Said("one"), Said("two")], expect=0)

    for expected in (0, 1, 3):
        with pytest.raises(StreamConflict) as caught, foreign.transaction():
            foreign.append(app, "Talk-1", Said("never"), expect=expected)
        assert str(caught.value).startswith(f"stream Talk-1 is at version 2, not {expected}; read the stream again")

    with foreign.transaction():
        assert foreign.append(app, "Talk-1", Said("three"), expect=2).version == 3
        assert foreign.append(app, "Talk-1", Said("four")).version == 4
    assert [event.data["text"] for event in events(observer)] == ["one", "two", "three", "four"]


def test_a_conflict_takes_the_rows_of_its_transaction_along(
    foreign: ForeignConnection | AsyncForeignConnection, app: Howdah, observer: Any
) -> None:
    with suppress(StreamConflict), foreign.transaction():
        foreign.append(app, "Talk-1", Said("with its transaction"))
        foreign.append(app, "Talk-2", Said("never"), expect=7)

    assert events(observer) == []


def test_no_events_are_refused_and_the_transaction_goes_on(
    foreign: ForeignConnection | AsyncForeignConnection, app: Howdah, observer: Any
) -> None:
    with foreign.transaction():
        foreign.append(app, "Talk-1", Said("one"))
        with pytest.raises(NoEvents, match="no events were given"):
            foreign.append(app, "Talk-1", [])
        with pytest.raises(EventError, match="a stream is named Type-id"):
            foreign.append(app, "Talk", Said("never"))
        with pytest.raises(EventError, match="expect is None"):
            foreign.append(app, "Talk-1", Said("never"), expect=-1)
        with pytest.raises(EventError, match="object cannot be an event"):
            foreign.append(app, "Talk-1", object())
        foreign.append(app, "Talk-1", Said("two"))

    assert [event.data["text"] for event in events(observer)] == ["one", "two"]


def test_texts_arrive_byte_for_byte(
    foreign: ForeignConnection | AsyncForeignConnection, app: Howdah, observer: Any
) -> None:
    with foreign.transaction():
        for text in TEXTS:
            foreign.append(app, f"Talk-{text.strip() or 1}".replace("\t", " ").replace("\n", " "), Said(text))

    assert [event.data["text"] for event in events(observer)] == TEXTS
    assert events(observer)[2].stream_id == TEXTS[2]


@pytest.mark.parametrize("schema", HOSTILE)
def test_any_name_of_a_schema_works(schema: str, direct: Database, observer: Any) -> None:
    app = Howdah(direct.dsn, schema=schema)
    asyncio.run(app.migrate())

    for name, open_way in FOREIGN_CONNECTIONS.items():
        with open_way(direct.dsn) as foreign, foreign.transaction():
            foreign.append(app, f"Way-{name}", Said(name))

    rows = observer.execute(f"select data ->> 'text' as text from {identifier(schema)}.event order by position")
    assert [row.text for row in rows] == list(FOREIGN_CONNECTIONS)
    assert events(observer) == []


def test_the_wrong_call_says_which_is_right(
    foreign: ForeignConnection | AsyncForeignConnection, app: Howdah, observer: Any
) -> None:
    name = type(foreign.conn).__name__

    if isinstance(foreign, AsyncForeignConnection):
        with pytest.raises(ConfigError, match=rf"^{name} is asynchronous; await append\("):
            app.log.append_sync("Talk-1", Said("never"), conn=foreign.conn)
    else:
        with pytest.raises(ConfigError, match=f"^{name} is synchronous; call append_sync"):
            asyncio.run(app.log.append("Talk-1", Said("never"), conn=foreign.conn))

    with pytest.raises(EventError, match="append_many needs a connection of asyncpg, got"):
        asyncio.run(app.log.append_many([("Talk-1", Said("never"))], conn=foreign.conn))
    assert events(observer) == []


# ---------------------------------------------------------------- not through a way


def test_without_a_connection_it_commits_by_itself(app: Howdah, observer: Any) -> None:
    made = app.log.append_sync("Talk-1", [Said("one"), Said("two")], expect=0, correlation="request 7")
    assert made.version == 2
    with pytest.raises(StreamConflict, match="stream Talk-1 is at version 2, not 0"):
        app.log.append_sync("Talk-1", Said("never"), expect=0)
    with pytest.raises(NoEvents):
        app.log.append_sync("Talk-1", [])

    assert [(event.version, event.correlation) for event in events(observer)] == [(1, "request 7"), (2, "request 7")]


@pytest.mark.anyio
async def test_synchronous_code_below_an_event_loop_appends_too(app: Howdah, observer: Any) -> None:
    made = await asyncio.to_thread(app.log.append_sync, "Talk-1", Said("from a thread"))
    await app.close()

    assert [event.position for event in events(observer)] == [made.position]


@pytest.mark.anyio
async def test_our_own_driver_is_awaited(app: Howdah, conn: Any, observer: Any) -> None:
    for wrong in (conn, Transaction(conn)):
        with pytest.raises(ConfigError, match=rf"^{type(wrong).__name__} is asynchronous; await append\("):
            app.log.append_sync("Talk-1", Said("never"), conn=wrong)

    transaction = conn.transaction()
    await transaction.start()
    await app.log.append("Talk-1", Said("one"), conn=conn)
    await app.log.append("Talk-1", Said("two"), conn=Transaction(conn))
    assert events(observer) == []
    await transaction.commit()

    assert [event.data["text"] for event in events(observer)] == ["one", "two"]


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


def test_a_savepoint_survives_a_conflict(app: Howdah, direct: Database, observer: Any) -> None:
    with psycopg.connect(direct.dsn) as conn, conn.transaction():
        app.log.append_sync("Talk-1", Said("one"), conn=conn)
        with suppress(StreamConflict), conn.transaction():
            app.log.append_sync("Talk-1", Said("never"), expect=0, conn=conn)
        app.log.append_sync("Talk-1", Said("two"), expect=1, conn=conn)

    assert [event.data["text"] for event in events(observer)] == ["one", "two"]
