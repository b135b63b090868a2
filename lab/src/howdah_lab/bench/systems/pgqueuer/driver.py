"""PgQueuer on asyncpg."""

import asyncio
import json
import time
from datetime import timedelta

import asyncpg
from pgqueuer import AsyncpgDriver, Queries, QueueManager

import kit

BATCH = 100
LIST = 2000


class PgQueuer(kit.Driver):
    packages = ("pgqueuer", "asyncpg", "uvloop")

    async def setup(self):
        await Queries.from_asyncpg_connection(await asyncpg.connect(kit.DSN)).install()

    async def open(self):
        self.pool = await asyncpg.create_pool(kit.DSN, min_size=10, max_size=10)
        self.queries = Queries.from_asyncpg_pool(self.pool)

    async def one(self, kind, args):
        await self.queries.enqueue(kind, json.dumps(args).encode())

    async def bulk(self, kind, jobs):
        for part in kit.chunks(jobs, LIST):
            payloads = [json.dumps(args).encode() for args in part]
            await self.queries.enqueue([kind] * len(part), payloads, [0] * len(part))

    async def shaped(self, kind, jobs):
        # it has no queues; the nearest are entrypoints
        for part in kit.chunks(jobs, LIST):
            await self.queries.enqueue(
                [options.get("queue", kind) for _, options in part],
                [json.dumps(args).encode() for args, _ in part],
                [options.get("priority", 0) for _, options in part],
                dedupe_key=[options.get("key") for _, options in part],
            )

    async def later(self, jobs, seconds):
        due = time.monotonic() + seconds
        for part in kit.chunks(jobs, LIST):
            payloads = [json.dumps(args).encode() for args in part]
            after = timedelta(seconds=due - time.monotonic())
            await self.queries.enqueue(["probe"] * len(part), payloads, [0] * len(part), [after] * len(part))

    async def work(self):
        pool = await asyncpg.create_pool(kit.DSN, min_size=10, max_size=10)
        manager = QueueManager(Queries(AsyncpgDriver(await asyncpg.connect(kit.DSN))))

        @manager.entrypoint("nothing")
        async def nothing(job):
            json.loads(job.payload)
            kit.start()

        for number in range(kit.QUEUES):
            manager.entrypoint(f"q{number}")(nothing)

        @manager.entrypoint("pause")
        async def pause(job):
            json.loads(job.payload)
            kit.start()
            await asyncio.sleep(kit.PAUSE)

        @manager.entrypoint("plain")
        async def plain(job):
            # plain functions are refused with the advice to write this
            await asyncio.to_thread(_plain, job.payload)

        @manager.entrypoint("insert")
        async def insert(job):
            json.loads(job.payload)
            kit.start()
            await pool.execute("insert into bench_effect (job) values ($1)", str(job.id))

        @manager.entrypoint("probe")
        async def probe(job):
            kit.probe(json.loads(job.payload)["began"])

        self.running = asyncio.create_task(manager.run(batch_size=BATCH))


def _plain(payload):
    json.loads(payload)
    kit.start()


kit.serve(PgQueuer())
