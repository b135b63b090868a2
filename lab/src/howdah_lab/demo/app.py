"""Application of the demo: the tasks, the table, the events and the consumers of a small shop.

Tasks wait and compute instead of mailing and drawing; everything else is real.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from hashlib import sha256

import msgspec

from howdah import Backoff, Event, Howdah, Poison, Snooze, Transaction, current_job, job_log, progress
from howdah.postgres import sql

SHOP = "HOWDAH_DEMO_SHOP"
"""Environment variable with the name of the shop's own schema."""

app = Howdah()


class Unavailable(Exception):
    """The remote API answered 503."""


@app.task(queue="mail", timeout=10)
async def send_email(address: str, template: str) -> None:
    """Fast and asynchronous: most of the load."""
    await asyncio.sleep(random.uniform(0.002, 0.04))  # noqa: S311


@app.task(queue="images", timeout=20)
def resize_image(image: int, width: int) -> int:
    """A plain function runs in a thread; returns the size of what it made."""
    pixels = sha256(str(image).encode()).digest() * (width * 8)
    return len(zlib.compress(pixels, 9))


@app.task(queue="reports", timeout=30, executor="process")
def build_report(day: int) -> dict[str, int]:
    """CPU-bound, so it runs in a process of its own."""
    total = 0
    for number in range(400_000):
        total = (total * 31 + number * day) % 1_000_003
    return {"day": day, "total": total}


@app.task(queue="webhooks", max_attempts=8, retry=Backoff(first=0.5, factor=1.6, cap=4))
async def call_webhook(order: int) -> int:
    """Calls a flaky API, which rejects an order up to three times and then accepts it."""
    await asyncio.sleep(random.uniform(0.01, 0.1))  # noqa: S311
    if current_job().attempt <= order % 4:
        raise Unavailable(f"503 from https://hooks.example.com/orders/{order}")
    return 200


@app.task(queue="imports")
async def import_row(line: str) -> None:
    """Fails for good on lines that cannot be parsed."""
    if line.count(",") != 2:
        raise Poison(f"not a row of three: {line!r}")


@app.task(queue="reminders", priority=10)
async def remind(address: str, about: str) -> None:
    """Scheduled some seconds ahead."""
    await asyncio.sleep(0.005)


@app.task(queue="stock")
async def await_stock(item: int, arrives: float) -> Snooze | None:
    """Snoozes, without using an attempt, until the item has arrived."""
    return Snooze(1.0) if time.time() < arrives else None


@app.task(queue="search")
async def refresh_index(shelf: int) -> None:
    """Enqueued all the time; the unique key allows one job at a time."""
    await asyncio.sleep(0.3)


@app.task(queue="exports", timeout=30)
async def export_catalogue(pages: int) -> int:
    """Takes several seconds and reports progress."""
    for page in range(pages):
        progress(page / pages, f"page {page + 1} of {pages}")
        await asyncio.sleep(0.25)
    job_log(f"{pages} pages written")
    return pages


@app.task(queue="reports")
async def count_till() -> None:
    """Enqueued by a schedule every minute, once for all nodes."""


app.schedule("till", count_till.job(), cron="* * * * *")


@app.task(queue="clicks")
async def count_click(page: int) -> None:
    """Does nothing; enqueued by the thousand."""


class Photo(msgspec.Struct, frozen=True):
    """Columns of a row of the shop's own table that the handler receives."""

    id: int
    pixels: int


async def develop(photo: Photo, tx: Transaction) -> None:
    """Commits its writes together with the final state of the row."""
    await asyncio.sleep(random.uniform(0.01, 0.1))  # noqa: S311
    if photo.pixels == 0:
        raise Poison(f"photo {photo.id} is empty")
    if photo.id % 7 == 0 and current_job().attempt == 1:
        raise Unavailable("503 from https://lab.example.com")
    await tx.execute(_sql()["develop"], photo.id)


def open_to(shop: str) -> None:
    """Work on the table of the shop whose schema has this name."""
    if "photos" not in app.tables:
        photos = app.table(
            f"{shop}.photos",
            name="photos",
            record=Photo,
            order_by=["id"],
            retry_after=1,
            slots=4,
            poll=0.5,
            transactional=True,
        )
        photos.handler(develop)


if SHOP in os.environ:
    open_to(os.environ[SHOP])


@app.event
class OrderPlaced(msgspec.Struct, frozen=True):
    """An order was placed."""

    address: str


@app.event
class ItemAdded(msgspec.Struct, frozen=True):
    """An item was added to the order."""

    item: str
    cents: int


@app.event
class OrderCharged(msgspec.Struct, frozen=True):
    """The order was paid."""


@app.event
class OrderShipped(msgspec.Struct, frozen=True):
    """The order was shipped."""


@app.event
class ShelfVisited(msgspec.Struct, frozen=True):
    """A customer viewed an item."""

    seconds: int


@app.task(queue="orders", transactional=True)
async def charge(tx: Transaction, order: int) -> None:
    """The payment, its event, the follow-up job and the completion are one commit."""
    await tx.execute(_sql()["charge"], order)
    await asyncio.sleep(random.uniform(0.005, 0.05))  # noqa: S311
    await app.log.append(f"Order-{order}", OrderCharged(), conn=tx)
    await ship.using(conn=tx).enqueue(order)


@app.task(queue="orders", transactional=True)
async def ship(tx: Transaction, order: int) -> None:
    """Made by :func:`charge`, or not at all."""
    await tx.execute(_sql()["ship"], order)
    await app.log.append(f"Order-{order}", OrderShipped(), conn=tx)


@app.task(queue="mail")
async def send_receipt(order: int) -> None:
    """Made by :func:`receipts`, one for every order that ships."""
    await asyncio.sleep(random.uniform(0.002, 0.02))  # noqa: S311


@app.consumer("order_view", only=["Order"])
async def order_view(event: Event, tx: Transaction) -> None:
    """A row for every order, as its last event left it. It and the checkpoint are one commit."""
    await tx.execute(_sql()["view_order"], int(event.stream_id), event.type, event.version)


@app.consumer("sales", types=[ItemAdded])
async def sales(event: Event, tx: Transaction) -> None:
    """Counts the sales of every item."""
    await tx.execute(_sql()["sell"], event.data.item, event.data.cents)


@app.consumer("receipts", types=[OrderShipped])
async def receipts(event: Event, tx: Transaction) -> None:
    """A job for every order that ships, in the commit that moves the checkpoint past it."""
    await send_receipt.using(conn=tx).enqueue(int(event.stream_id))


@app.consumer("visits", only=["Shelf"], batch=500, partitions=2)
async def visits(events: Sequence[Event], tx: Transaction) -> None:
    """Counts views in whole batches; its two partitions are shared by the nodes."""
    seconds: Counter[int] = Counter()
    for event in events:
        seconds[int(event.stream_id)] += event.data.seconds
    await tx.executemany(_sql()["visit"], sorted(seconds.items()))


@cache
def _sql() -> dict[str, str]:
    return sql.load("howdah_lab.demo", schema=app.database.schema, shop=os.environ[SHOP])
