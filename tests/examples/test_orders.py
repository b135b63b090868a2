"""The orders: events that are decided upon, projected, told about, and replayed into a new read model."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from howdah import NewEvent, StreamConflict
from howdah.testing import assert_enqueued, drain, refute_enqueued
from kit.node import eventually, node

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[2] / "examples"
MODULES = ("orders", "orders.app", "orders.rebuild")


@pytest.fixture
async def orders(direct, conn, monkeypatch):
    """The module of the example, with an app on the fresh database."""
    monkeypatch.syspath_prepend(EXAMPLES)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    orders = importlib.import_module("orders.app")
    orders.app.connect_to(direct.dsn)
    await conn.execute(orders.SCHEMA.read_text())
    yield orders
    await orders.app.close()
    for name in MODULES:
        sys.modules.pop(name, None)


async def view(conn, id):
    row = await conn.fetchrow("select * from orders where id = $1", id)
    return row and tuple(row)


async def test_an_order_is_what_happened_to_it(orders):
    await orders.place("1", "ann", tea=450, milk=120)
    await orders.add("1", "sugar", 80)
    await orders.pay("1")
    made = await orders.ship("1", "P-1")

    assert await orders.load("1") == orders.Order("ann", "shipped", 650, ("tea", "milk", "sugar"), False, made.version)
    paid = (await orders.app.log.stream("Order-1"))[-2]
    assert paid.data == orders.OrderPaid(650), "decided from the events before it"


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda orders: orders.place("1", "bob"), "the order is paid, not new"),
        (lambda orders: orders.add("1", "milk", 1), "the order is paid, not open"),
        (lambda orders: orders.pay("1"), "the order is paid, not open"),
        (lambda orders: orders.ship("2", "P-1"), "the order is new, not paid"),
        (lambda orders: orders.cancel("2", "never was"), "the order is new, not open or paid"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_leaves_no_event(orders, conn, act, message):
    await orders.place("1", "ann", tea=450)
    await orders.pay("1")
    before = await conn.fetchval("select count(*) from howdah.event")

    with pytest.raises(orders.Refused, match=f"^{message}$"):
        await act(orders)
    assert await conn.fetchval("select count(*) from howdah.event") == before


async def test_whoever_was_slower_decides_anew(orders, conn):
    await orders.place("1", "ann", tea=450)
    async with conn.transaction():
        await orders.app.log.append("Order-1", orders.ItemAdded("milk", 120), expect=2, conn=conn)
        paying = asyncio.create_task(orders.pay("1"))
        await eventually(lambda: waits(orders))
    await paying

    assert (await orders.app.log.stream("Order-1"))[-1].data == orders.OrderPaid(570), "with the milk"


async def test_whoever_was_slower_may_be_refused(orders, conn):
    await orders.place("1", "ann", tea=450)
    await orders.pay("1")
    async with conn.transaction():
        await orders.app.log.append("Order-1", orders.OrderShipped("P-1"), expect=3, conn=conn)
        cancelling = asyncio.create_task(orders.cancel("1", "no longer wanted"))
        await eventually(lambda: waits(orders))

    with pytest.raises(orders.Refused, match="the order is shipped"):
        await cancelling


async def waits(orders):
    other = await orders.app.database.connect("test")
    try:
        return await other.fetchval("select count(*) = 1 from pg_locks where not granted")
    finally:
        await other.close()


async def test_one_cannot_decide_for_ever(orders, monkeypatch):
    monkeypatch.setattr(orders, "TRIES", 3)
    await orders.place("1", "ann")
    loads, load = [], orders.load

    async def stale(id):
        loads.append(id)
        return orders.Order(state="open", version=(await load(id)).version - 1)

    monkeypatch.setattr(orders, "load", stale)
    with pytest.raises(StreamConflict, match=r"^order 1 changes faster than one can decide$"):
        await orders.pay("1")
    assert len(loads) == 3


async def test_events_of_the_first_version_are_read_in_cents(orders, conn):
    old = NewEvent(type="ItemAdded", version=1, data={"item": "tea", "euros": 4.35})
    await orders.app.log.append("Order-1", [orders.OrderPlaced("ann"), old])
    await drain(orders.app)

    assert (await orders.load("1")).cents == 435
    assert await view(conn, "1") == ("1", "ann", "open", 435)
    stored = await conn.fetchrow("select schema_version, data::text from howdah.event where version = 2")
    assert tuple(stored) == (1, '{"item":"tea","euros":4.35}'), "the event itself stays as it is"


async def test_a_customer_reads_what_they_wrote(orders, conn):
    async with node(orders.app):
        await eventually(lambda: conn.fetchval("select count(*) = 2 from howdah.consumer"))
        for number in range(5):
            made = await orders.place(str(number), "ann", tea=450)
            await orders.app.log.wait_for("order_view", made)
            assert await view(conn, str(number)) == (str(number), "ann", "open", 450)


async def test_the_projection_looks_at_orders_only(orders, conn):
    await orders.app.log.append("Basket-1", orders.OrderPlaced("ann"))
    await orders.place("1", "ann")
    await orders.cancel("1", "enough")
    await drain(orders.app)

    assert [tuple(row) for row in await conn.fetch("select * from orders")] == [("1", "ann", "cancelled", 0)]


async def test_who_was_told_before_the_first_start_is_not_told_again(orders, conn):
    await orders.place("1", "ann")
    await orders.pay("1")
    await orders.ship("1", "P-1")
    await drain(orders.app)
    await refute_enqueued(orders.app, "send_mail", finished=True)

    await orders.place("2", "bob")
    await orders.pay("2")
    await orders.ship("2", "P-2")
    await drain(orders.app)
    assert [tuple(row) for row in await conn.fetch("select recipient, words from outbox")] == [
        ("bob@example.com", "order 2 is on its way in parcel P-2")
    ]
    assert not (await orders.load("1")).told


async def notified(orders, id):
    return (await orders.load(id)).told


async def shipped(orders, id="1"):
    """An order that has just been shipped, by an application whose consumers are known."""
    await drain(orders.app)
    await orders.place(id, "ann")
    await orders.pay(id)
    await orders.ship(id, f"P-{id}")


async def test_the_job_and_the_position_of_its_consumer_are_one_commit(orders, conn):
    await shipped(orders)
    await drain(orders.app, queues="elsewhere")

    [job] = await assert_enqueued(orders.app, "send_mail", "1", "P-1", count=1)
    same = (
        "select j.xmin = k.xmin from howdah.job j, howdah.checkpoint k where j.id = $1 and k.consumer = 'shipping_mail'"
    )
    assert await conn.fetchval(same, job.id) is True


async def test_the_mail_and_the_event_that_says_so_are_one_commit(orders, conn):
    await shipped(orders)
    await drain(orders.app)

    last = (await orders.app.log.stream("Order-1"))[-1]
    assert (last.data, last.causation) == (orders.CustomerTold("P-1"), "job 1")
    assert await conn.fetchval(
        "select o.xmin = e.xmin from outbox o, howdah.event e where e.position = $1", last.position
    )


async def test_a_mail_that_fails_is_not_noted_as_told(orders, conn):
    await shipped(orders)
    await conn.execute("alter table outbox add constraint closed check (false)")
    assert (await drain(orders.app, raise_failures=False)).retry == 1
    assert not await notified(orders, "1")

    await conn.execute("alter table outbox drop constraint closed")
    assert (await drain(orders.app, scheduled=True)).ok == 1
    assert await notified(orders, "1")
    assert await conn.fetchval("select count(*) from outbox") == 1


@pytest.fixture
async def rebuild(orders, conn):
    """Deploys the next release: returns its module."""

    async def deploy():
        rebuild = importlib.import_module("orders.rebuild")
        await conn.execute(rebuild.SCHEMA.read_text())
        return rebuild

    return deploy


async def test_the_log_is_replayed_beside_the_old_read_model_and_readers_are_switched(orders, rebuild, conn):
    for id in "12":
        await orders.place(id, "ann", tea=450, milk=120)
    await orders.pay("1")
    async with node(orders.app, rebalance=0.2):
        await eventually(lambda: conn.fetchval("select count(*) = 2 from orders_1"))
        later = await rebuild()
        async with node(orders.app, rebalance=0.2):
            await orders.place("3", "cem", mate=390)
            position = await later.switch()
            made = await orders.cancel("3", "enough")
            await orders.app.log.wait_for("order_view_2", made)

            assert await view(conn, "3") == ("3", "cem", "cancelled", 390, ["mate"], False)
            assert await conn.fetchval("select state from orders_1 where id = '3'") == "open", "the old one rests"
    old, new, _ = await orders.app.log.admin.consumers()
    assert (old.name, old.state, old.paused_by) == ("order_view", "paused", "switch to order_view_2")
    assert old.position <= position <= new.position
    assert await view(conn, "1") == ("1", "ann", "paid", 570, ["tea", "milk"], False)


async def test_the_new_read_model_is_the_fold_of_the_log_however_it_is_cut(orders, rebuild, conn):
    later = await rebuild()
    for number in range(40):
        id = str(number % 7)
        await (orders.add(id, f"item {number}", number) if number >= 7 else orders.place(id, f"customer {id}"))
        if number % 9 == 0:
            await drain(orders.app)
    await orders.cancel("3", "enough")
    await drain(orders.app)

    for id in map(str, range(7)):
        order = await orders.load(id)
        assert await conn.fetchrow(f"select {later.COLUMNS} from orders_2 where id = $1", id) == (
            order.customer,
            order.state,
            order.cents,
            list(order.items),
            order.told,
            order.version,
        )


async def test_nobody_is_switched_to_a_read_model_that_is_not_there_yet(orders, rebuild, conn):
    await orders.place("1", "ann")
    await drain(orders.app)
    later = await rebuild()

    with pytest.raises(TimeoutError):
        await later.switch(timeout=0.5)
    assert await view(conn, "1") == ("1", "ann", "open", 0)


def test_the_whole_thing_runs_in_one_command(tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HOWDAH_", "PG"))}
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "orders" / "run.py"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert ran.returncode == 0, ran.stderr
    output, shown = re.split(r"\n\n", ran.stdout)
    for line in (
        "the projection caught up: 300 orders of last year, 130500 cents",
        "placed, and read at once: ('A', 'ann', 'open', 450)",
        "five items added at the same moment: 6 items, 950 cents",
        "cancelling is refused: the order is shipped, not open or paid",
    ):
        assert line in output.splitlines()
    assert re.search(r"^replayed and switched at position \d+: 303 orders are the same in both", output, re.MULTILINE)
    assert re.fullmatch(
        r"""what happened to order A
   1  OrderPlaced\(customer='ann'\)
   2  ItemAdded\(item='tea', cents=450\)
(   [3-7]  ItemAdded\(item='\w+', cents=100\)\n){5}   8  OrderPaid\(cents=950\)
   9  OrderShipped\(parcel='P-1'\)
  10  CustomerTold\(parcel='P-1'\)  job 1
orders, now with their items
  A  ann  shipped     950  cake honey lemon milk sugar tea
  B  bob  cancelled   700  coffee
  C  cem  open        390  mate
outbox
  to ann@example.com: order A is on its way in parcel P-1
consumers
  order_view      1215 events  paused by: switch to order_view_2
  order_view_2    1215 events  at work until just now
  shipping_mail      1 events  at work until just now
""",
        shown,
    ), shown
