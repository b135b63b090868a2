"""The books of the demo: they balance after honest work, and say so when anything is off."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from howdah.audit import Actor, acting_as
from howdah.postgres.database import Database
from howdah.testing import drain
from howdah_lab.demo import app as shop
from howdah_lab.demo.screen import draw, line
from howdah_lab.demo.snapshot import DemoCheck, DemoDatabase
from howdah_lab.demo.workload import VISITS, Workload

pytestmark = pytest.mark.anyio


class DemoShop:
    """A shop on a database of its own, its customers and its ledger."""

    def __init__(self, database: Database) -> None:
        self.database = DemoDatabase(database, "shop")
        self.customers = Workload(database, "shop")

    async def trade(self, orders: int = 8) -> None:
        """Some orders, charged and shipped, and some visits."""
        for _ in range(orders):
            await self.customers.order()
        await self.customers.visits()
        await self.customers.photos()
        while not (await self.database.snapshot()).idle:  # jobs append events, and events make jobs
            await drain(shop.app, scheduled=True, raise_failures=False)

    async def check(self) -> DemoCheck:
        """Balance them."""
        return await self.database.check(self.customers.enqueued, self.customers.photographed)


@pytest.fixture
async def demo(direct: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[DemoShop]:
    monkeypatch.setenv(shop.SHOP, "shop")
    shop._sql.cache_clear()
    shop.open_to("shop")
    shop.app.connect_to(direct.dsn, "howdah")
    random.seed(17)
    demo = DemoShop(direct)
    await demo.database.create_tables()
    yield demo
    await demo.database.close()
    await shop.app.close()


async def test_honest_books_balance(demo: DemoShop, conn: Any) -> None:
    await demo.trade()
    await demo.trade()
    result = await demo.check()

    assert result.good
    assert (result.astray, result.facts["behind"]) == (0, 0)
    orders = 16 - demo.customers.rolled_back
    assert 0 < orders < 16
    assert result.facts["receipts"] == result.facts["mailed"] == orders
    assert await conn.fetchval("select count(*) from shop.order_view where state = 'OrderShipped'") == orders
    assert result.facts["events"] > 2 * VISITS + 4 * orders - 1


async def test_books_balance_while_consumers_are_behind(demo: DemoShop) -> None:
    await demo.trade()
    before = demo.customers.enqueued
    while demo.customers.enqueued == before:  # some are rolled back
        await demo.customers.order()
    await demo.customers.visits()
    result = await demo.check()

    assert result.astray == 0
    assert result.facts["behind"] >= 2


@pytest.mark.parametrize(
    "falsely",
    [
        "update shop.order_view set events = events + 1 where id = 1",
        "update shop.order_view set state = 'OrderPlaced' where id = 1",
        "delete from shop.order_view where id = 1",
        "update shop.sales set sold = sold - 1",
        "update shop.sales set cents = cents + 1",
        "update shop.visits set seconds = seconds + 1 where shelf = 3",
        "update shop.orders set charged = 0 where id = 1",
        "insert into shop.orders (address) values ('nobody@example.com')",
        "delete from howdah.event where type = 'OrderPlaced' and stream_id = '1'",
        "update howdah.checkpoint set position = position - 1 where consumer = 'order_view'",
    ],
)
async def test_what_is_off_shows(demo: DemoShop, conn: Any, falsely: str) -> None:
    await demo.trade()
    assert (await demo.check()).good
    await conn.execute(falsely)

    result = await demo.check()
    assert result.astray > 0
    assert not result.good


@pytest.mark.parametrize(
    ("falsely", "what"),
    [
        ("update shop.photos set developed = 2 where id = 1", "doubled"),
        ("update shop.photos set state = 'queued' where id = 1", "doubled"),
        ("update shop.photos set developed = 0 where id = 1", "lost"),
        ("delete from shop.photos where id = 1", "lost"),
        ("update shop.photos set state = 'failed', developed = 0 where id = 1", "unexpected"),
    ],
)
async def test_a_row_that_is_off_shows(demo: DemoShop, conn: Any, falsely: str, what: str) -> None:
    await demo.trade()
    assert await conn.fetchval("select developed from shop.photos where id = 1 and pixels > 0") == 1
    assert (await demo.check()).good
    await conn.execute(falsely)

    result = await demo.check()
    assert getattr(result, what) > 0
    assert not result.good


async def test_a_slot_of_the_schedule_twice_shows(demo: DemoShop, conn: Any) -> None:
    for seconds in (0, 60):
        at = f"2026-01-01 00:00:{seconds // 60:02}+00"
        await conn.execute("select howdah.enqueue('count_till', '{}', 'reports', run_at => $1::text::timestamptz)", at)
    assert (await demo.check()).good

    await conn.execute("select howdah.enqueue('count_till', '{}', 'reports', run_at => '2026-01-01 00:00:00+00')")
    assert (await demo.check()).doubled == 1


async def test_what_people_did_on_the_dashboard_is_not_held_against_the_books(demo: DemoShop, conn: Any) -> None:
    await demo.trade()
    await shop.send_receipt.enqueue(1)
    assert (await demo.check()).lost > 0
    with acting_as(Actor("ada", "dashboard")):
        await shop.app.admin.pause("mail")
        assert (await demo.check()).lost > 0
        await shop.app.admin.delete([1])

    assert (await demo.check()).good
    await conn.execute("delete from howdah.ready")
    assert (await demo.check()).lost == 1


async def test_a_receipt_too_many_and_a_halted_consumer_show(demo: DemoShop, conn: Any) -> None:
    await demo.trade()
    await conn.execute("update howdah.checkpoint set halted = true where consumer = 'sales'")
    assert not (await demo.check()).good
    await conn.execute("update howdah.checkpoint set halted = false")

    await shop.send_receipt.enqueue(1)
    assert (await demo.check()).lost > 0


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40)])
async def test_the_screen_shows_consumers_and_the_log(demo: DemoShop, conn: Any, width: int, height: int) -> None:
    await demo.trade()
    await conn.execute("update howdah.consumer set paused = true where name = 'sales'")
    snapshot = await demo.database.snapshot()
    paper = Console(file=StringIO(), width=width, height=height, force_terminal=False)
    paper.print(draw(snapshot, demo.customers, [1.0, 2.0], 5, "here"), height=height)
    drawn = paper.file.getvalue()

    head = await conn.fetchval("select max(position) from howdah.event")
    assert f"event log: head {head:,}, frontier {head:,}" in drawn
    shown = {row[1]: row[2] for row in map(str.split, drawn.splitlines()) if len(row) > 2}
    assert shown["sales"] == "paused"
    assert {"order_view", "receipts", "visits#0", "visits#1"} <= set(shown)
    assert f"{head:,}" in next(row for row in drawn.splitlines() if "order_view" in row)
    assert line(snapshot, demo.customers, [], 5).endswith(f"  log {head:,}  lag 0")
    assert snapshot.idle
