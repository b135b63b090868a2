"""The next release: builds a second read model from the whole log, then switches readers to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from howdah import Event, HowdahError, Transaction
from orders.app import Order, app

log = logging.getLogger("orders")

SCHEMA = Path(__file__).with_name("rebuild.sql")
COLUMNS = "customer, state, cents, items, told, version"
WRITE = f"""
insert into orders_2 (id, {COLUMNS}) values ($1, $2, $3, $4, $5, $6, $7)
on conflict (id) do update
set customer = excluded.customer, state = excluded.state, cents = excluded.cents, items = excluded.items,
    told = excluded.told, version = excluded.version
"""
SWITCH = "create or replace view orders as select id, customer, state, cents, items, told from orders_2"


@app.consumer("order_view_2", only=["Order"], batch=1000)
class OrderView:
    """Handles whole batches: reads the affected orders, applies the events, writes the orders back."""

    async def handle(self, events: Sequence[Event], tx: Transaction) -> None:
        touched = list({event.stream_id for event in events})
        rows = await tx.fetch(f"select id, {COLUMNS} from orders_2 where id = any($1)", touched)
        orders = {
            id: Order(customer, state, cents, tuple(items), *more) for id, customer, state, cents, items, *more in rows
        }
        for event in events:
            orders[event.stream_id] = orders.get(event.stream_id, Order()).after(event)
        await tx.executemany(
            WRITE,
            [
                (id, order.customer, order.state, order.cents, list(order.items), order.told, order.version)
                for id, order in orders.items()
            ],
        )


async def switch(timeout: float = 60) -> int:
    """Wait until the new read model has caught up, then switch readers to it; return its position."""
    async with asyncio.timeout(timeout):
        while True:
            rows = [row for row in await app.log.admin.consumers() if row.name == "order_view_2"]
            if rows and rows[0].state == "running" and not rows[0].lag:
                try:
                    return await app.log.admin.switch("order_view", "order_view_2", SWITCH)
                except HowdahError as error:  # the old consumer was slightly ahead
                    log.debug("%s", error)
            await asyncio.sleep(0.05)
