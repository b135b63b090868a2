"""Run the whole example on a private PostgreSQL: order, project, notify, replay, switch, print the tables."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg

from howdah import NewEvent, WorkerOptions
from howdah.postgres.embedded import server as embedded

EXAMPLES = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(EXAMPLES))

from orders.app import SCHEMA, Refused, add, app, cancel, load, pay, place, ship  # noqa: E402

OLD = 300


async def last_year() -> None:
    """Append old orders as an earlier release would have written them, with prices in euros."""
    await app.log.append_many(
        (
            f"Order-{number}",
            [
                NewEvent(type="OrderPlaced", data={"customer": f"customer{number}"}),
                NewEvent(type="ItemAdded", version=1, data={"item": "tea", "euros": 4.35}),
                NewEvent(type="OrderPaid", data={"cents": 435}),
                NewEvent(type="OrderShipped", data={"parcel": f"old-{number}"}),
            ],
        )
        for number in range(1, OLD + 1)
    )


@asynccontextmanager
async def working() -> AsyncIterator[None]:
    """Run a node for the duration of the block."""
    node = asyncio.create_task(app.work())
    try:
        yield
    finally:
        node.cancel()
        with suppress(asyncio.CancelledError):
            await node


async def catch_up(conn: Any) -> None:
    """First start: the projection builds its read model from the existing events."""
    await last_year()
    await app.work(WorkerOptions(drain=True))
    orders, cents = await conn.fetchrow("select count(*), sum(cents)::bigint from orders")
    print(f"the projection caught up: {orders} orders of last year, {cents} cents")


async def live(conn: Any) -> None:
    """Take one order from its first event to the mail, and cancel another."""
    made = await place("A", "ann", tea=450)
    await app.log.wait_for("order_view", made)
    print(f"placed, and read at once: {tuple(await conn.fetchrow('select * from orders where id = $1', 'A'))}")

    await asyncio.gather(*(add("A", item, 100) for item in ("milk", "sugar", "lemon", "honey", "cake")))
    order = await load("A")
    print(f"five items added at the same moment: {len(order.items)} items, {order.cents} cents")

    await pay("A")
    await ship("A", "P-1")
    try:
        await cancel("A", "too late")
    except Refused as error:
        print(f"cancelling is refused: {error}")

    await place("B", "bob", coffee=700)
    await cancel("B", "changed his mind")
    async with asyncio.timeout(30):
        while not (await load("A")).told:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def rebuild(conn: Any) -> None:
    """Deploy the next release, which builds another read model from the log, and switch to it."""
    from orders import rebuild

    await conn.execute(rebuild.SCHEMA.read_text())
    async with working():  # another node, while the first keeps running
        await place("C", "cem", mate=390)
        position = await rebuild.switch()
    same = await conn.fetchval("select count(*) from orders_1 join orders_2 using (id, customer, state, cents)")
    print(f"replayed and switched at position {position}: {same} orders are the same in both read models")


async def main() -> None:
    """Run all steps in order."""
    await app.migrate()
    conn = await asyncpg.connect(app.database.dsn)
    await conn.execute(SCHEMA.read_text())
    await catch_up(conn)
    async with working():
        await live(conn)
        await rebuild(conn)
    await show(conn)
    await app.close()
    await conn.close()


async def show(conn: Any) -> None:
    """Print the log and the tables."""
    print("\nwhat happened to order A")
    for event in await app.log.stream("Order-A"):
        print(f"  {event.version:>2}  {event.data}  {event.causation or ''}".rstrip())
    print("orders, now with their items")
    for row in await conn.fetch("select * from orders where id >= 'A' order by id"):
        print(
            f"  {row['id']}  {row['customer']}  {row['state']:<9}  {row['cents']:>4}  {' '.join(sorted(row['items']))}"
        )
    print("outbox")
    for row in await conn.fetch("select * from outbox order by id"):
        print(f"  to {row['recipient']}: {row['words']}")
    print("consumers")
    for consumer in await app.log.admin.consumers():
        resting = f"paused by: {consumer.paused_by}" if consumer.state == "paused" else "at work until just now"
        print(f"  {consumer.name:<13}  {consumer.handled:>5} events  {resting}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    with embedded.start() as server:
        app.connect_to(server.dsn)
        asyncio.run(main())
