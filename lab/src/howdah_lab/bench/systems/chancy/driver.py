"""Chancy on psycopg."""

import logging
from datetime import UTC, datetime, timedelta

from chancy import Chancy, Queue, Worker

import jobs as handlers
import kit

LIST = 1000
HANDLERS = {name: getattr(handlers, name) for name in ("nothing", "pause", "plain", "insert", "probe")}


class Driver(kit.Driver):
    packages = ("chancy", "psycopg", "psycopg-binary", "uvloop")

    def __init__(self):
        self.chancy = Chancy(kit.DSN, min_connection_pool_size=10, log=logging.getLogger("bench"))

    async def setup(self):
        await self.chancy.migrate()
        for name, executor in (("default", Chancy.Executor.Async), ("threads", Chancy.Executor.Threaded)):
            concurrency = 200 if name == "default" else 32
            await self.chancy.declare(
                Queue(name, concurrency=concurrency, executor=executor, eager_polling=True, polling_interval=1)
            )

    async def open(self):
        await self.chancy.pool.open(wait=True)

    async def one(self, kind, args):
        await self.chancy.push(HANDLERS[kind].job.with_kwargs(**args))

    async def bulk(self, kind, jobs):
        made = [HANDLERS[kind].job.with_kwargs(**args) for args in jobs]
        async for _ in self.chancy.push_many(made, batch_size=LIST):
            pass

    async def later(self, jobs, seconds):
        due = datetime.now(UTC) + timedelta(seconds=seconds)
        made = [HANDLERS["probe"].job.with_kwargs(**args).with_scheduled_at(due) for args in jobs]
        async for _ in self.chancy.push_many(made, batch_size=LIST):
            pass

    async def work(self):
        await self.chancy.pool.open(wait=True)
        handlers.pool = self.chancy.pool
        worker = Worker(self.chancy, register_signal_handlers=False)
        worker.send_outgoing_interval = 0.1
        await worker.start()
        self.worker = worker


kit.serve(Driver())
