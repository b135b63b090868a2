"""Oban for Python on psycopg."""

import asyncio
from datetime import UTC, datetime, timedelta

from oban import Oban, worker
from oban.schema import install

import kit

LIST = 1000


@worker(queue="default")
class Nothing:
    async def process(self, job):
        kit.start()


@worker(queue="default")
class Pause:
    async def process(self, job):
        kit.start()
        await asyncio.sleep(kit.PAUSE)


@worker(queue="default")
class Plain:
    async def process(self, job):
        # plain functions run on the event loop; this is how blocking code is kept off it
        await asyncio.to_thread(kit.start)


@worker(queue="default")
class Insert:
    async def process(self, job):
        kit.start()
        async with Driver.pool.connection() as conn:
            await conn.execute("insert into bench_effect (job) values (%s)", (str(job.id),))


@worker(queue="default")
class Probe:
    async def process(self, job):
        kit.probe(job.args["began"])


WORKERS = {"nothing": Nothing, "pause": Pause, "plain": Plain, "insert": Insert, "probe": Probe}


class Driver(kit.Driver):
    packages = ("oban", "psycopg", "psycopg-binary", "uvloop")
    pool = None

    async def _pool(self):
        Driver.pool = await Oban.create_pool(kit.DSN, min_size=10, max_size=10)
        return Driver.pool

    async def setup(self):
        await install(await self._pool())

    async def open(self):
        self.oban = Oban(pool=await self._pool())
        await self.oban.start()

    async def one(self, kind, args):
        await self.oban.enqueue(WORKERS[kind].new(args))

    async def bulk(self, kind, jobs):
        for part in kit.chunks(jobs, LIST):
            await self.oban.enqueue_many(WORKERS[kind].new(args) for args in part)

    async def later(self, jobs, seconds):
        due = datetime.now(UTC) + timedelta(seconds=seconds)
        for part in kit.chunks(jobs, LIST):
            await self.oban.enqueue_many(Probe.new(args, scheduled_at=due) for args in part)

    async def work(self):
        self.oban = Oban(pool=await self._pool(), queues={"default": 200}, stager={"interval": 0.2})
        await self.oban.start()


kit.serve(Driver())
