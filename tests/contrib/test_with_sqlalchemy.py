from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy
from foreign_connections import async_engine_for, engine_for
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from howdah import Task
from howdah.postgres.database import Database

Note = Task[[str], None]


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)


def counts(observer: Any) -> Any:
    return observer.execute(
        "select (select count(*) from orders) as orders, (select count(*) from howdah.jobs) as jobs"
    ).fetchone()


def test_rows_and_jobs_are_one_commit(task: Note, direct: Database, observer: Any) -> None:
    engine = engine_for(direct.dsn)
    Base.metadata.create_all(engine)

    for finish in ("rollback", "commit"):
        with Session(engine) as session:
            order = Order()
            session.add(order)
            session.flush()
            task.using(conn=session).enqueue_sync(str(order.id))
            getattr(session, finish)()
        assert counts(observer) == ((0, 0) if finish == "rollback" else (1, 1))
    engine.dispose()


def test_hooks_and_pending_objects_of_a_session_are_left_alone(task: Note, direct: Database) -> None:
    engine = engine_for(direct.dsn)
    seen: list[Any] = []
    with Session(engine) as session:
        event.listen(session, "do_orm_execute", seen.append)
        order = Order()
        session.add(order)
        task.using(conn=session).enqueue_sync("hello")

        assert seen == []
        assert order in session.new
    engine.dispose()


def test_autocommit_isolation_enqueues_at_once(task: Note, direct: Database, observer: Any) -> None:
    engine = engine_for(direct.dsn)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        task.using(conn=conn).enqueue_sync("hello")

        assert observer.execute("select count(*) from howdah.jobs").fetchone() == (1,)
    engine.dispose()


def test_a_session_without_a_database_says_so_itself(task: Note) -> None:
    with Session() as session, pytest.raises(sqlalchemy.exc.UnboundExecutionError):
        task.using(conn=session).enqueue_sync("hello")


@pytest.mark.anyio
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_async_sessions_take_both_calls(driver: str, task: Note, direct: Database, observer: Any) -> None:
    engine = async_engine_for(direct.dsn, driver)
    async with AsyncSession(engine) as session, session.begin():
        await task.using(conn=session).enqueue("awaited")
        await session.run_sync(lambda inner: task.using(conn=inner).enqueue_sync("inside run_sync"))
    await engine.dispose()

    rows = observer.execute("select args ->> 'text' from howdah.jobs order by id")
    assert rows.fetchall() == [("awaited",), ("inside run_sync",)]
