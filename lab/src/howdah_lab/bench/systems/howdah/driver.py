"""Howdah. The worker is what `howdah worker --metrics` runs, with the defaults."""

import asyncio

import asyncpg

import kit
from howdah import Backoff, Howdah, Job, Transaction, WorkerOptions, current_job, telemetry
from howdah.cli.worker import NodeProcess
from howdah.observe import logs, tracing
from howdah.postgres import sql

app = Howdah(kit.DSN, schema=kit.SCHEMA)
INSERT = sql.load("howdah_lab.bench", schema=kit.SCHEMA)["insert_effect"]


@app.task
async def nothing(user_id: int, email: str, template: str, number: int, tags: list[str]) -> None:
    kit.start()


@app.task
async def pause(user_id: int, email: str, template: str, number: int, tags: list[str]) -> None:
    kit.start()
    await asyncio.sleep(kit.PAUSE)


@app.task
def plain(user_id: int, email: str, template: str, number: int, tags: list[str]) -> None:
    kit.start()


@app.task
async def insert(user_id: int, email: str, template: str, number: int, tags: list[str]) -> None:
    kit.start()
    await Howdahs.pool.execute(INSERT, current_job().id)


@app.task(transactional=True)
async def transact(tx: Transaction, user_id: int, email: str, template: str, number: int, tags: list[str]) -> None:
    kit.start()
    await tx.execute(INSERT, current_job().id)


@app.task(transactional=True, batch=500)
async def batch(
    tx: Transaction,
    user_id: list[int],
    email: list[str],
    template: list[str],
    number: list[int],
    tags: list[list[str]],
    jobs: list[Job],
) -> None:
    for _ in jobs:
        kit.start()
    await tx.executemany(INSERT, [(job.id,) for job in jobs])


@app.task
async def value(user_id: int, email: str, template: str, number: int, tags: list[str]) -> dict[str, int]:
    kit.start()
    return {"number": number}


@app.task(retry=Backoff(first=0, jitter=0))
async def failing(user_id: int, email: str, template: str, number: int, tags: list[str]) -> None:
    if kit.fails(user_id):
        raise RuntimeError("the first time it fails")
    kit.start()


@app.task
async def probe(began: float) -> None:
    kit.probe(began)


TASKS = {task.kind: task for task in (nothing, pause, plain, insert, transact, batch, value, failing, probe)}


def job_of(kind, args, options):
    return TASKS[kind].using(**options).job(**args)


class Howdahs(kit.Driver):
    packages = ("howdah", "asyncpg", "uvloop")
    pool = None
    """Connections of the handlers, as an application has its own."""

    async def setup(self):
        await app.migrate()

    async def open(self):
        await app.admin.queues()

    async def one(self, kind, args):
        await TASKS[kind].enqueue(**args)

    async def bulk(self, kind, jobs):
        task = TASKS[kind]
        await app.enqueue_many(task.job(**args) for args in jobs)

    async def shaped(self, kind, jobs):
        await app.enqueue_many(job_of(kind, *each) for each in jobs)

    async def enqueue_singles(self, kind):
        await self.enqueue_each(job_of(kind, args, {}) for args in self.made)

    async def enqueue_queue_singles(self, kind):
        await self.enqueue_each(job_of(kind, args, kit.options(number)) for number, args in enumerate(self.made))

    async def enqueue_each(self, jobs):
        # one transaction: the layout of the queued jobs matters here, not the commits
        conn = await app.database.connect("bench enqueue")
        try:
            async with conn.transaction():
                for job in jobs:
                    await app.enqueue(job, conn)
        finally:
            conn.terminate()

    async def later(self, jobs, seconds):
        task = probe.using(delay=seconds)
        await app.enqueue_many(task.job(**args) for args in jobs)

    async def work(self):
        logs.configure("info", json=False)
        tracing.install()
        await app.database.check()
        options = {"statement_cache_size": 0} if app.database.pooled else {}
        Howdahs.pool = await asyncpg.create_pool(kit.DSN, min_size=10, max_size=10, **options)
        worker = WorkerOptions()
        node = NodeProcess(app.node(worker), worker, database=app.database, metrics=("127.0.0.1", 0))
        ready = asyncio.Event()
        telemetry.subscribe(lambda name, facts: ready.set() if name == "node.start" else None)
        self.node = asyncio.create_task(node.run())
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait([self.node, waiting], return_when=asyncio.FIRST_COMPLETED)
        if self.node.done():
            self.node.result()


kit.serve(Howdahs())
