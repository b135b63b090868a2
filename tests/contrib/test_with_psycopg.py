from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from howdah import Task
from howdah.postgres.database import Database

Note = Task[[str], None]


def test_in_autocommit_the_job_is_there_at_once(task: Note, direct: Database, observer: Any) -> None:
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        made = task.using(conn=conn).enqueue_sync("hello")

        assert observer.execute("select id from howdah.jobs").fetchall() == [(made.id,)]
        assert conn.info.transaction_status is TransactionStatus.IDLE


def test_the_connection_stays_as_it_was(task: Note, direct: Database) -> None:
    with psycopg.connect(
        direct.dsn, row_factory=dict_row, cursor_factory=psycopg.ClientCursor, prepare_threshold=None
    ) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        # names with a dot belong to plpgsql, which is loaded at its first use
        settings = "select name, setting from pg_settings where name !~ '^transaction|\\.' order by name"
        before = conn.execute(settings).fetchall()

        task.using(conn=conn).enqueue_sync("hello")

        assert conn.info.transaction_status is TransactionStatus.INTRANS
        assert conn.execute(settings).fetchall() == before
        assert (conn.row_factory, conn.cursor_factory) == (dict_row, psycopg.ClientCursor)
        assert (conn.prepare_threshold, conn.isolation_level) == (None, psycopg.IsolationLevel.REPEATABLE_READ)


def test_a_savepoint_takes_its_own_job_back_only(task: Note, direct: Database, observer: Any) -> None:
    with psycopg.connect(direct.dsn) as conn, conn.transaction():
        task.using(conn=conn).enqueue_sync("kept")
        with conn.transaction(force_rollback=True):
            task.using(conn=conn).enqueue_sync("dropped")

    assert observer.execute("select args ->> 'text' from howdah.jobs").fetchall() == [("kept",)]


def test_it_works_inside_a_pipeline(task: Note, direct: Database, observer: Any) -> None:
    with psycopg.connect(direct.dsn) as conn, conn.pipeline():
        for number in range(20):
            assert task.using(conn=conn).enqueue_sync(str(number)).fresh

    assert observer.execute("select count(*) from howdah.jobs").fetchone() == (20,)


def test_errors_are_those_of_psycopg(task: Note, direct: Database) -> None:
    with psycopg.connect(direct.dsn) as conn:
        with pytest.raises(psycopg.errors.DivisionByZero):
            conn.execute("select 1 / 0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            task.using(conn=conn).enqueue_sync("hello")


@pytest.mark.anyio
async def test_async_connections_are_awaited(task: Note, direct: Database, observer: Any) -> None:
    async with await psycopg.AsyncConnection.connect(direct.dsn) as conn:
        made = await task.using(conn=conn).enqueue("hello")
        assert conn.info.transaction_status is TransactionStatus.INTRANS

    assert observer.execute("select id from howdah.jobs").fetchall() == [(made.id,)]
