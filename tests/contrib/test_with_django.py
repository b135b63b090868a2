from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connection, connections, transaction
from foreign_connections import ForeignConnection, with_django

from howdah import ConfigError, Howdah, Task
from howdah.contrib.with_django import fresh_connections
from howdah.postgres.database import Database
from kit.node import drain

Note = Task[[str], None]


@pytest.fixture(autouse=True)
def django(direct: Database) -> Iterator[ForeignConnection]:
    """``django.db.connection``, led to the database of this test."""
    with with_django(direct.dsn) as foreign:
        yield foreign


def texts(observer: Any) -> list[str]:
    return [text for (text,) in observer.execute("select args ->> 'text' from howdah.jobs order by id")]


def test_a_job_rolls_back_with_its_atomic_block(task: Note, observer: Any) -> None:
    with suppress(KeyError), transaction.atomic():
        task.using(conn=connection).enqueue_sync("dropped")
        raise KeyError
    with transaction.atomic():
        task.using(conn=connection).enqueue_sync("kept")
        with suppress(KeyError), transaction.atomic():
            task.using(conn=connection).enqueue_sync("dropped with its savepoint")
            raise KeyError

    assert texts(observer) == ["kept"]


def test_outside_of_a_block_the_job_is_there_at_once(task: Note, observer: Any) -> None:
    task.using(conn=connections["default"]).enqueue_sync("hello")

    assert texts(observer) == ["hello"]


def test_after_an_error_django_refuses_as_ever(task: Note, observer: Any) -> None:
    with transaction.atomic():
        with suppress(DatabaseError), transaction.atomic(savepoint=False), connection.cursor() as cursor:
            cursor.execute("select 1 / 0")
        with pytest.raises(transaction.TransactionManagementError):
            task.using(conn=connection).enqueue_sync("hello")
        transaction.set_rollback(True)

    assert texts(observer) == []


def test_another_database_is_refused_by_its_vendor(task: Note) -> None:
    with pytest.raises(ConfigError, match=r"^database 'lite' is sqlite, jobs live in PostgreSQL; enqueue through"):
        task.using(conn=connections["lite"]).enqueue_sync("hello")


def test_a_worker_runs_a_task_that_uses_the_database(app: Howdah, observer: Any) -> None:
    @app.task
    @fresh_connections
    def double(number: int) -> int:
        with connection.cursor() as cursor:
            cursor.execute("select %s * 2", [number])
            return int(cursor.fetchone()[0])

    with transaction.atomic():
        made = double.using(conn=connection).enqueue_sync(21)
    asyncio.run(drain(app))

    row = observer.execute("select state, result from howdah.jobs where id = %s", [made.id]).fetchone()
    assert row == ("done", 42)


def test_a_broken_connection_is_replaced(observer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections["default"].settings_dict, "CONN_MAX_AGE", None)

    def backend() -> int:
        with connection.cursor() as cursor:
            cursor.execute("select pg_backend_pid()")
            return int(cursor.fetchone()[0])

    first = backend()
    observer.execute("select pg_terminate_backend(%s, 5000)", [first])
    with pytest.raises(OperationalError):
        fresh_connections(backend)()

    assert fresh_connections(backend)() != first


def test_fresh_connections_are_for_plain_functions() -> None:
    async def later() -> None: ...

    with pytest.raises(ConfigError, match=r"later is a coroutine function; write `def`"):
        fresh_connections(later)
