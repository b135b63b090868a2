"""The how-to pages on other libraries: what they show of events is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_pages import DJANGO, run, unfold

from howdah.postgres.database import Database


@pytest.fixture
def orders(observer: Any) -> None:
    observer.execute("create table orders (id bigint generated always as identity primary key, item text not null)")
    observer.execute("insert into orders (item) values ('tea'), ('milk')")


def events(observer: Any) -> list[tuple[Any, ...]]:
    rows = observer.execute("select stream_type, stream_id, version, type, data from howdah.event order by position")
    return [tuple(row) for row in rows]


@pytest.mark.usefixtures("orders")
def test_the_page_on_transactions(tmp_path: Path, direct: Database, observer: Any) -> None:
    unfold("enqueue-in-your-transaction.md", tmp_path)
    script = """
import os, psycopg, history
from howdah import StreamConflict
with psycopg.connect(os.environ["DATABASE_URL"]) as conn:
    assert history.pay_order(conn, 1, 450, version=0) == 1
    try:
        history.pay_order(conn, 1, 450, version=0)
    except StreamConflict:
        print("once is enough")
"""
    assert "once is enough" in run(tmp_path, direct, "-c", script)

    assert events(observer) == [("Order", "1", 1, "OrderPaid", {"cents": 450})]
    assert observer.execute("select kind, args from howdah.jobs").fetchall() == [("send_receipt", {"order_id": 1})]


@pytest.mark.usefixtures("orders")
def test_the_page_on_sqlalchemy(tmp_path: Path, direct: Database, observer: Any) -> None:
    unfold("sqlalchemy.md", tmp_path)
    script = """
import asyncio, os, asyncpg, psycopg, history, shop
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
dsn = os.environ["DATABASE_URL"]
with Session(create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))) as session:
    history.cancel_order(session, session.get_one(shop.Order, 1), "cold")
async def main():
    engine = create_async_engine("postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(dsn))
    async with AsyncSession(engine) as session:
        await history.rename_order(session, 2, "cream")
    await engine.dispose()
asyncio.run(main())
"""
    run(tmp_path, direct, "-c", script)

    assert events(observer) == [
        ("Order", "1", 1, "OrderCancelled", {"reason": "cold"}),
        ("Order", "2", 1, "OrderRenamed", {"item": "cream"}),
    ]
    assert observer.execute("select id, item from orders").fetchall() == [(2, "cream")]


@pytest.mark.usefixtures("orders")
def test_the_page_on_django(tmp_path: Path, direct: Database, observer: Any) -> None:
    for path, text in DJANGO.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    unfold("django.md", tmp_path)
    script = """
import shop.worker
from shop.history import cancel_order
from howdah import StreamConflict
cancel_order(1, "cold", version=0)
try:
    cancel_order(2, "late", version=3)
except StreamConflict:
    print("the order stays")
"""
    assert "the order stays" in run(tmp_path, direct, "-c", script)

    assert events(observer) == [("Order", "1", 1, "OrderCancelled", {"reason": "cold"})]
    assert observer.execute("select id from orders").fetchall() == [(2,)]
