"""A bulk with large arguments through a connection of another library: several statements, all jobs or none."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import sqlalchemy
from foreign_connections import AsyncForeignConnection, ForeignConnection, async_engine_for, engine_for

from howdah import ArgumentError, Howdah, NewJob
from howdah.jobs.enqueue import PART_BYTES
from howdah.postgres.database import Database


def large(*numbers: int, size: int = PART_BYTES * 2 // 3, **fields: Any) -> list[NewJob]:
    """Jobs of which no two fit into one statement."""
    return [NewJob(kind="note", payload=b'{"n":%d,"text":"%s"}' % (n, b"x" * size), **fields) for n in numbers]


def broken() -> NewJob:
    """A job that only the server rejects."""
    return NewJob(kind="note", payload=b'{"n":}' + b" " * PART_BYTES)


def enqueue_many(app: Howdah, foreign: ForeignConnection | AsyncForeignConnection, jobs: list[NewJob]) -> list[int]:
    if isinstance(foreign, AsyncForeignConnection):
        return [made.id for made in foreign._runner.run(app.enqueue_many(jobs, conn=foreign.conn))]
    return [made.id for made in app.enqueue_many_sync(jobs, conn=foreign.conn)]


def numbers(observer: Any) -> list[tuple[int]]:
    return [
        tuple(row) for row in observer.execute("select (args ->> 'n')::int from howdah.jobs order by id").fetchall()
    ]


def test_they_are_enqueued_in_order(app: Howdah, foreign: Any, observer: Any) -> None:
    with foreign.transaction():
        ids = enqueue_many(app, foreign, large(1, 2, 3, 4))

    assert ids == sorted(ids)
    assert numbers(observer) == [(1,), (2,), (3,), (4,)]


AUTOCOMMIT: dict[str, Callable[[str], Any]] = {
    "psycopg": lambda dsn: psycopg.connect(dsn, autocommit=True),
    "sqlalchemy": lambda dsn: engine_for(dsn).connect().execution_options(isolation_level="AUTOCOMMIT"),
}


@pytest.mark.parametrize("library", AUTOCOMMIT)
def test_in_autocommit_all_are_enqueued_or_none(app: Howdah, direct: Database, observer: Any, library: str) -> None:
    with AUTOCOMMIT[library](direct.dsn) as conn:
        with pytest.raises((psycopg.DataError, sqlalchemy.exc.DataError)):
            app.enqueue_many_sync([*large(1, 2), broken()], conn=conn)
        assert numbers(observer) == []

        app.enqueue_many_sync(large(3, 4), conn=conn)
        assert numbers(observer) == [(3,), (4,)]


def test_in_autocommit_of_an_asynchronous_driver_all_are_enqueued_or_none(
    app: Howdah, direct: Database, observer: Any
) -> None:
    async def enqueue_twice() -> None:
        async with async_engine_for(direct.dsn).connect() as opened:
            conn = await opened.execution_options(isolation_level="AUTOCOMMIT")
            with pytest.raises(sqlalchemy.exc.DBAPIError):
                await app.enqueue_many([*large(1, 2), broken()], conn=conn)
            assert numbers(observer) == []
            await app.enqueue_many(large(3, 4), conn=conn)

    asyncio.run(enqueue_twice())
    assert numbers(observer) == [(3,), (4,)]


def test_an_invalid_job_is_found_before_the_first_statement(app: Howdah, direct: Database, observer: Any) -> None:
    with psycopg.connect(direct.dsn) as conn:
        with pytest.raises(ArgumentError, match="priority"):
            app.enqueue_many_sync(large(1, 2) + large(3, priority=101), conn=conn)
        conn.commit()

    assert numbers(observer) == []


def test_it_works_inside_a_pipeline(app: Howdah, direct: Database, observer: Any) -> None:
    with psycopg.connect(direct.dsn) as conn, conn.pipeline():
        app.enqueue_many_sync(large(1, 2, 3), conn=conn)

    assert numbers(observer) == [(1,), (2,), (3,)]


def test_in_a_pipeline_in_autocommit_all_are_enqueued_or_none(app: Howdah, direct: Database, observer: Any) -> None:
    with psycopg.connect(direct.dsn, autocommit=True) as conn:
        with pytest.raises(psycopg.DataError), conn.pipeline():
            app.enqueue_many_sync([*large(1, 2), broken()], conn=conn)
        assert numbers(observer) == []

        with conn.pipeline():
            app.enqueue_many_sync(large(3, 4), conn=conn)
    assert numbers(observer) == [(3,), (4,)]


def test_the_client_never_holds_a_copy_of_all_arguments(app: Howdah, direct: Database) -> None:
    jobs = large(*range(20))
    with psycopg.connect(direct.dsn) as conn:
        app.enqueue_many_sync(jobs[:1], conn=conn)
        tracemalloc.start()
        try:
            app.enqueue_many_sync(jobs, conn=conn)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert peak < sum(len(job.payload) for job in jobs) / 2
