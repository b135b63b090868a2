"""The tasks of a small shop. They wait and compute instead of mailing and drawing; all around them is real."""

from __future__ import annotations

import asyncio
import os
import random
import time
import zlib
from hashlib import sha256

from howdah import Backoff, Howdah, Poison, Snooze, Transaction, current_job
from howdah.pg.sql import identifier

SHOP = "HOWDAH_DEMO_SHOP"
"""The environment variable with the name of the shop's own schema."""

app = Howdah()


class Unavailable(Exception):
    """The other side answered 503."""


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
    """All Python and no waiting, so it gets a process of its own."""
    total = 0
    for number in range(400_000):
        total = (total * 31 + number * day) % 1_000_003
    return {"day": day, "total": total}


@app.task(queue="webhooks", max_attempts=8, retry=Backoff(first=0.5, factor=1.6, cap=4))
async def call_webhook(order: int) -> int:
    """The other side is down now and then: refuses an order up to three times, then takes it."""
    await asyncio.sleep(random.uniform(0.01, 0.1))  # noqa: S311
    if current_job().attempt <= order % 4:
        raise Unavailable(f"503 from https://hooks.example.com/orders/{order}")
    return 200


@app.task(queue="imports")
async def import_row(line: str) -> None:
    """Some lines can never be read, however often one tries."""
    if line.count(",") != 2:
        raise Poison(f"not a row of three: {line!r}")


@app.task(queue="reminders", priority=10)
async def remind(address: str, about: str) -> None:
    """Enqueued for a moment some seconds ahead."""
    await asyncio.sleep(0.005)


@app.task(queue="stock")
async def await_stock(item: int, arrives: float) -> Snooze | None:
    """Looks again later, at no attempt's cost, until the item has arrived."""
    return Snooze(1.0) if time.time() < arrives else None


@app.task(queue="search")
async def refresh_index(shelf: int) -> None:
    """Asked for all the time; the unique key lets one at a time through."""
    await asyncio.sleep(0.3)


@app.task(queue="clicks")
async def count_click(page: int) -> None:
    """Nothing at all, by the thousand."""


@app.task(queue="orders", transactional=True)
async def charge(tx: Transaction, order: int) -> None:
    """The payment, the follow-up job and the completion are one commit."""
    await tx.execute(f"update {_orders()} set charged = charged + 1 where id = $1", order)  # noqa: S608 - quoted
    await asyncio.sleep(random.uniform(0.005, 0.05))  # noqa: S311
    await ship.using(conn=tx).enqueue(order)


@app.task(queue="orders", transactional=True)
async def ship(tx: Transaction, order: int) -> None:
    """Made by :func:`charge`, or not at all."""
    await tx.execute(f"update {_orders()} set shipped = shipped + 1 where id = $1", order)  # noqa: S608 - quoted


def _orders() -> str:
    return f"{identifier(os.environ[SHOP])}.orders"
