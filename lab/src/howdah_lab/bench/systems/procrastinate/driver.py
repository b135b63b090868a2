"""Procrastinate on psycopg."""

import asyncio
from datetime import UTC, datetime, timedelta

import procrastinate

import kit

LIST = 1000
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=kit.DSN, min_size=10, max_size=20))
PACKAGES = ("procrastinate", "psycopg", "psycopg-binary", "uvloop")


@app.task(name="nothing")
async def nothing(**args):
    kit.start()


@app.task(name="pause")
async def pause(**args):
    kit.start()
    await asyncio.sleep(kit.PAUSE)


@app.task(name="plain")
def plain(**args):
    kit.start()


@app.task(name="insert", pass_context=True)
async def insert(context, **args):
    kit.start()
    await app.connector.execute_query_async("insert into bench_effect (job) values (%(job)s)", job=str(context.job.id))


@app.task(name="probe")
async def probe(began):
    kit.probe(began)


TASKS = {task.name: task for task in (nothing, pause, plain, insert, probe)}


class Procrastinate(kit.Driver):
    packages = PACKAGES

    async def setup(self):
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def open(self):
        await app.open_async()

    async def one(self, kind, args):
        await TASKS[kind].defer_async(**args)

    async def bulk(self, kind, jobs):
        for part in kit.chunks(jobs, LIST):
            await TASKS[kind].batch_defer_async(*part)

    async def shaped(self, kind, jobs):
        # options hold for a whole list, so those that have the same go together
        alike = {}
        for args, options in jobs:
            alike.setdefault((options.get("queue"), options.get("priority"), options.get("key")), []).append(args)
        for (queue, priority, key), each in alike.items():
            deferrer = TASKS[kind].configure(queue=queue, priority=priority, queueing_lock=key)
            for part in kit.chunks(each, LIST):
                await deferrer.batch_defer_async(*part)

    async def later(self, jobs, seconds):
        deferrer = probe.configure(schedule_at=datetime.now(UTC) + timedelta(seconds=seconds))
        for part in kit.chunks(jobs, LIST):
            await deferrer.batch_defer_async(*part)

    async def work(self):
        await app.open_async()
        worker = app.run_worker_async(
            concurrency=10,
            delete_jobs="successful",
            fetch_job_polling_interval=0.2,
            install_signal_handlers=False,
        )
        self.running = asyncio.create_task(worker)


kit.serve(Procrastinate())
