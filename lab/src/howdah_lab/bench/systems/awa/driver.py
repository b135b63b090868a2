"""Awa, whose engine is in Rust."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import awa

import kit

LIST = 5000
WORKERS = 500
DSN = kit.DSN.replace("@/", "@localhost/")
"""Its driver wants a host to be named, also where the socket is named further on."""


@dataclass
class Nothing:
    user_id: int
    email: str
    template: str
    number: int
    tags: list


@dataclass
class Pause(Nothing): ...


@dataclass
class Plain(Nothing): ...


@dataclass
class Insert(Nothing): ...


@dataclass
class Probe:
    began: float


KINDS = {"nothing": Nothing, "pause": Pause, "plain": Plain, "insert": Insert, "probe": Probe}


class Driver(kit.Driver):
    packages = ("awa-pg", "uvloop")

    async def setup(self):
        await awa.migrate(DSN)
        # without it, jobs go to its older tables until the first worker has started
        await awa.AsyncClient(DSN).install_queue_storage()

    async def open(self):
        self.client = awa.AsyncClient(DSN, max_connections=10)
        await self.client.queue_stats()

    async def one(self, kind, args):
        await self.client.insert(KINDS[kind](**args))

    async def bulk(self, kind, jobs):
        for part in kit.chunks(jobs, LIST):
            await self.client.enqueue_many_copy([KINDS[kind](**args) for args in part])

    async def later(self, jobs, seconds):
        due = datetime.now(UTC) + timedelta(seconds=seconds)
        for part in kit.chunks(jobs, LIST):
            await self.client.enqueue_many_copy([Probe(**args) for args in part], run_at=due)

    async def work(self):
        client = self.client = awa.AsyncClient(DSN, max_connections=20)

        @client.task(Nothing)
        async def nothing(job):
            kit.start()

        @client.task(Pause)
        async def pause(job):
            kit.start()
            await asyncio.sleep(kit.PAUSE)

        @client.task(Plain)
        async def plain(job):
            await asyncio.to_thread(kit.start)

        @client.task(Insert)
        async def insert(job):
            kit.start()
            async with await client.transaction() as tx:
                await tx.execute("insert into bench_effect (job) values ($1)", str(job.id))

        @client.task(Probe)
        async def probe(job):
            kit.probe(job.args.began)

        await client.start([("default", WORKERS)])


kit.serve(Driver())
