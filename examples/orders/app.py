"""Event-sourced orders: events, commands with optimistic concurrency, a projection and a notification."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from howdah import Appended, Event, Howdah, StreamConflict, Transaction

log = logging.getLogger("orders")

app = Howdah()
SCHEMA = Path(__file__).with_name("schema.sql")
TRIES = 20


# ---------------------------------------------------------------- events


@app.event
@dataclass(frozen=True)
class OrderPlaced:
    customer: str


@app.event(version=2)
@dataclass(frozen=True)
class ItemAdded:
    item: str
    cents: int


@app.upcaster(ItemAdded, version=1)
def cents_for_euros(data: dict[str, Any]) -> dict[str, Any]:
    """Convert version 1, which had euros with a fraction. Stored events are not changed."""
    return {"item": data["item"], "cents": round(data["euros"] * 100)}


@app.event
@dataclass(frozen=True)
class OrderPaid:
    cents: int


@app.event
@dataclass(frozen=True)
class OrderShipped:
    parcel: str


@app.event
@dataclass(frozen=True)
class OrderCancelled:
    reason: str


@app.event
@dataclass(frozen=True)
class CustomerTold:
    parcel: str


# ---------------------------------------------------------------- the order and its commands


class Refused(Exception):
    """The command is not allowed in the current state of the order."""


@dataclass(frozen=True)
class Order:
    """State of one order, folded from its events."""

    customer: str = ""
    state: str = "new"
    cents: int = 0
    items: tuple[str, ...] = ()
    told: bool = False
    version: int = 0

    def after(self, event: Event) -> Order:
        """Return the state after this event."""
        order = replace(self, version=event.version)
        match event.data:
            case OrderPlaced(customer):
                return replace(order, customer=customer, state="open")
            case ItemAdded(item, cents):
                return replace(order, items=(*order.items, item), cents=order.cents + cents)
            case OrderPaid():
                return replace(order, state="paid")
            case OrderShipped():
                return replace(order, state="shipped")
            case OrderCancelled():
                return replace(order, state="cancelled")
            case CustomerTold():
                return replace(order, told=True)
        return order

    def must_be(self, *states: str) -> None:
        """Raise Refused unless the order is in one of these states."""
        if self.state not in states:
            raise Refused(f"the order is {self.state}, not {' or '.join(states)}")


async def load(id: str) -> Order:
    """Read the stream of an order and return its current state."""
    order = Order()
    while events := await app.log.stream(f"Order-{id}", after=order.version):
        order = reduce(Order.after, events, order)
    return order


async def decide(id: str, decision: Callable[[Order], object]) -> Appended:
    """Load the order, decide, append the result; on a version conflict, load and decide again."""
    for _ in range(TRIES):
        order = await load(id)
        try:
            return await app.log.append(f"Order-{id}", decision(order), expect=order.version)
        except StreamConflict:
            log.debug("order %s has moved past version %d", id, order.version)
    raise StreamConflict(f"order {id} changes faster than one can decide")


async def place(id: str, customer: str, **items: int) -> Appended:
    """Place a new order; each keyword is an item with its price in cents."""

    def decision(order: Order) -> list[object]:
        order.must_be("new")
        return [OrderPlaced(customer), *(ItemAdded(item, cents) for item, cents in items.items())]

    return await decide(id, decision)


async def add(id: str, item: str, cents: int) -> Appended:
    """Add an item."""

    def decision(order: Order) -> ItemAdded:
        order.must_be("open")
        return ItemAdded(item, cents)

    return await decide(id, decision)


async def pay(id: str) -> Appended:
    """Pay the current total."""

    def decision(order: Order) -> OrderPaid:
        order.must_be("open")
        return OrderPaid(order.cents)

    return await decide(id, decision)


async def ship(id: str, parcel: str) -> Appended:
    """Ship the order."""

    def decision(order: Order) -> OrderShipped:
        order.must_be("paid")
        return OrderShipped(parcel)

    return await decide(id, decision)


async def cancel(id: str, reason: str) -> Appended:
    """Cancel the order."""

    def decision(order: Order) -> OrderCancelled:
        order.must_be("open", "paid")
        return OrderCancelled(reason)

    return await decide(id, decision)


# ---------------------------------------------------------------- consumers and tasks


@app.consumer("order_view", only=["Order"])
async def order_view(event: Event, tx: Transaction) -> None:
    """Maintain one row per order. The row and the checkpoint are one commit, so no event is counted twice."""
    id = event.stream_id
    match event.data:
        case OrderPlaced(customer):
            await tx.execute("insert into orders_1 (id, customer, state) values ($1, $2, 'open')", id, customer)
        case ItemAdded(_, cents):
            await tx.execute("update orders_1 set cents = cents + $2 where id = $1", id, cents)
        case OrderPaid():
            await tx.execute("update orders_1 set state = 'paid' where id = $1", id)
        case OrderShipped():
            await tx.execute("update orders_1 set state = 'shipped' where id = $1", id)
        case OrderCancelled():
            await tx.execute("update orders_1 set state = 'cancelled' where id = $1", id)


@app.consumer("shipping_mail", types=[OrderShipped], start="end")
async def shipping_mail(event: Event, tx: Transaction) -> None:
    """Enqueue one job for every order that ships from now on; earlier events are skipped by start="end"."""
    await send_mail.using(conn=tx).enqueue(event.stream_id, event.data.parcel)


@app.task(queue="mail", transactional=True)
async def send_mail(tx: Transaction, order: str, parcel: str) -> None:
    """Notify the customer. The mail, the event about it and the completion of the job are one commit."""
    customer = (await load(order)).customer
    await tx.execute(
        "insert into outbox (recipient, words) values ($1, $2)",
        f"{customer}@example.com",
        f"order {order} is on its way in parcel {parcel}",
    )
    await app.log.append(f"Order-{order}", CustomerTold(parcel), conn=tx)
