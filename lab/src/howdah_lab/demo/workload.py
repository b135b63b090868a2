"""Workload of the demo: simulated customers that enqueue jobs and append events."""

from __future__ import annotations

import asyncio
import random
import time

from howdah.job import Enqueued
from howdah.loops import every
from howdah.postgres import sql
from howdah.postgres.database import Database
from howdah_lab.demo import app as shop

BURST = 2000
VISITS = 1000
ITEMS = {"chair": 8900, "desk": 24_900, "lamp": 3900, "shelf": 5900}


class Workload:
    """Enqueues and appends a bit of everything until it is stopped, and counts the accepted calls."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._sql = sql.load("howdah_lab.demo", schema=database.schema, shop=name)
        self._random = random.Random(17)  # noqa: S311 - the same shop every time
        self.enqueued = 0
        self.merged = 0
        """Calls that found a live job with their unique key."""
        self.rolled_back = 0
        """Orders whose transaction was rolled back; they leave neither job nor event."""
        self.photographed = 0
        """Rows of the shop's own table."""

    async def run(self, stop: asyncio.Event) -> None:
        """Produce until ``stop``."""
        producers = (
            (0.05, self.emails),
            (0.2, self.images),
            (1.2, self.reports),
            (0.25, self.webhooks),
            (0.5, self.imports),
            (0.7, self.reminders),
            (1.0, self.stock),
            (0.1, self.searches),
            (0.3, self.order),
            (4.0, self.clicks),
            (1.5, self.visits),
            (5.0, self.exports),
            (0.6, self.photos),
        )
        async with asyncio.TaskGroup() as group:
            for pause, produce in producers:
                group.create_task(every(pause, produce, name=f"demo {produce.__name__}", stop=stop))

    async def emails(self) -> None:
        """Several concurrent calls, which share a round trip; some are urgent."""
        urgent = self._random.random() < 0.1
        task = shop.send_email.using(priority=50) if urgent else shop.send_email
        template = "password reset" if urgent else "newsletter"
        calls = [task.enqueue(self._address(), template) for _ in range(self._random.randint(1, 5))]
        self._note(*await asyncio.gather(*calls))

    async def images(self) -> None:
        """One picture in two sizes."""
        image = self._random.randrange(10_000)
        jobs = [shop.resize_image.job(image, width) for width in (320, 1280)]
        self._note(*await shop.app.enqueue_many(jobs))

    async def reports(self) -> None:
        """The report of one day."""
        self._note(await shop.build_report.enqueue(self._random.randrange(1, 366)))

    async def webhooks(self) -> None:
        """A status request for an order."""
        self._note(await shop.call_webhook.enqueue(self._random.randrange(1, 10_000)))

    async def imports(self) -> None:
        """A few lines of a file; now and then one that cannot be read."""
        lines = [f"{number},chair,{number % 90}" for number in range(5)]
        if self._random.random() < 0.3:
            lines.append("17;chair;40")
        self._note(*await shop.app.enqueue_many(shop.import_row.job(line) for line in lines))

    async def reminders(self) -> None:
        """A reminder some seconds ahead."""
        task = shop.remind.using(delay=self._random.uniform(2, 8))
        self._note(await task.enqueue(self._address(), "the basket"))

    async def stock(self) -> None:
        """An item that arrives soon."""
        self._note(
            await shop.await_stock.enqueue(self._random.randrange(500), time.time() + self._random.uniform(1, 4))
        )

    async def searches(self) -> None:
        """At most one live job per shelf."""
        shelf = self._random.randrange(3)
        self._note(await shop.refresh_index.using(key=f"shelf {shelf}").enqueue(shelf))

    async def clicks(self) -> None:
        """All of them by one COPY."""
        self._note(*await shop.app.enqueue_many(shop.count_click.job(page % 50) for page in range(BURST)))

    async def exports(self) -> None:
        """An export of all data."""
        self._note(await shop.export_catalogue.enqueue(self._random.randint(4, 10)))

    async def photos(self) -> None:
        """Rows of the shop's own table, by its own insert; now and then one is empty."""
        pixels = [0 if self._random.random() < 0.05 else 12_000_000 for _ in range(self._random.randint(1, 6))]
        conn = await self._database.connect("demo photos")
        try:
            await conn.execute(self._sql["photograph"], pixels)
            self.photographed += len(pixels)
        finally:
            conn.terminate()

    async def visits(self) -> None:
        """All of them by one COPY, into the streams of some shelves."""
        shelves = [
            (f"Shelf-{self._random.randrange(40)}", shop.ShelfVisited(self._random.randrange(1, 60)))
            for _ in range(VISITS)
        ]
        await shop.app.log.append_many(shelves)

    async def order(self) -> None:
        """The order, its events and the job that charges it are one commit, or none of it happens."""
        conn = await self._database.connect("demo order")
        transaction = conn.transaction()
        try:
            await transaction.start()
            address = self._address()
            number = await conn.fetchval(self._sql["order"], address)
            items = self._random.choices(list(ITEMS), k=self._random.randint(1, 4))
            events = [shop.OrderPlaced(address), *(shop.ItemAdded(item, ITEMS[item]) for item in items)]
            await shop.app.log.append(f"Order-{number}", events, expect=0, conn=conn)
            made = await shop.charge.using(conn=conn).enqueue(number)
            if self._random.random() < 0.15:
                await transaction.rollback()
                self.rolled_back += 1
            else:
                await transaction.commit()
                self._note(made)
        finally:
            conn.terminate()

    def _note(self, *made: Enqueued) -> None:
        fresh = sum(each.fresh for each in made)
        self.enqueued += fresh
        self.merged += len(made) - fresh

    def _address(self) -> str:
        return f"user{self._random.randrange(1, 1000)}@example.com"
