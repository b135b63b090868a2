"""A shop whose consumers run in a worker of its own, for commands that act on them."""

from __future__ import annotations

from pathlib import Path

import psycopg

from kit.command import Command, eventually

SHOP = """
from howdah import Backoff, Howdah

app = Howdah()
quick = Backoff(first=0.01, cap=0.01)

async def note(name, events, tx):
    for event in events:
        await tx.execute("insert into seen (consumer, position) values ($1, $2)", name, event.position)
        if event.data.get("bad") and not await tx.fetchval("select exists (select from mended)"):
            raise ValueError(f"cannot\\x1b[31m add {event.position}, token=hunter2")

@app.consumer("totals", only=["Order"], max_failures=2, retry=quick, batch=50)
async def totals(event, tx):
    await note("totals", [event], tx)

@app.consumer("mails", only=["Order"], on_failure="park", max_failures=1, retry=quick)
async def mails(event, tx):
    await note("mails", [event], tx)

@app.consumer("wide", only=["Other"], partitions=3)
async def wide(events, tx):
    await note("wide", events, tx)
"""
TABLES = "create table seen (consumer text, position bigint); create table mended ()"
FLAGS = ("--rebalance", "200ms", "--dispatch", "50ms", "--heartbeat", "250ms", "--lease", "3s")


class Shop:
    """The log of one database, and who follows it."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.folder = folder
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.conn.execute(TABLES)
        (folder / "shop_followed.py").write_text(SHOP)

    def worker(self, *flags: str) -> Command:
        """A worker whose consumers are known already."""
        worker = self._worker(*flags)
        known = "select count(*) from howdah.consumer"
        try:
            eventually(lambda: self.conn.execute(known).fetchone() == (3,), why=lambda: worker.output)
        except BaseException:
            worker.__exit__()
            raise
        return worker

    def _worker(self, *flags: str) -> Command:
        return Command("worker", "-a", "shop_followed:app", *FLAGS, *flags, dsn=self.dsn, folder=self.folder)

    def catch_up(self) -> None:
        """Run a worker until everything is handled."""
        with self._worker("--drain") as worker:
            eventually(lambda: worker.process.poll() is not None, 30, lambda: worker.output)
            assert worker.process.returncode == 0, worker.output

    def append(self, *data: str, stream: str = "Order-1") -> int:
        """Append events; returns the position of the last one."""
        for each in data or ["{}"]:
            made = self.conn.execute(
                "select position from howdah.append(%s, json_build_object('type', 'Placed', 'data', %s::json))",
                (stream, each),
            ).fetchone()
        return int(made[0])

    def append_many(self, count: int) -> None:
        self.conn.execute(
            "insert into howdah.event (stream_type, stream_id, version, type, data)"
            " select 'Order', 'many', i, 'Placed', '{}' from generate_series(1, %s) i",
            (count,),
        )

    def seen(self, consumer: str) -> list[int]:
        rows = self.conn.execute("select position from seen where consumer = %s order by 1", (consumer,))
        return [row[0] for row in rows]
