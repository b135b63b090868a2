"""Celery on Redis. Its handlers are plain functions."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from celery import Celery

import kit

app = Celery("bench", broker=f"redis+socket://{kit.REDIS}")
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=128,
    worker_send_task_events=False,
    task_send_sent_event=False,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    broker_pool_limit=100,
)


@app.task(name="plain")
def plain(**args):
    kit.start()


@app.task(name="probe")
def probe(began):
    kit.probe(began)


TASKS = {"plain": plain, "probe": probe}


class Driver(kit.Driver):
    packages = ("celery", "redis")

    async def setup(self): ...

    async def open(self):
        self.threads = ThreadPoolExecutor(1000)
        with app.connection_for_write() as conn:
            conn.ensure_connection()

    async def one(self, kind, args):
        TASKS[kind].apply_async(kwargs=args)

    async def enqueue_callers(self, callers, jobs, kind):
        each = int(jobs) // int(callers)

        def call(first):
            for number in range(first, first + each):
                TASKS[kind].apply_async(kwargs=kit.arguments(number))

        loop = asyncio.get_running_loop()
        calls = (loop.run_in_executor(self.threads, call, caller * each) for caller in range(int(callers)))
        await asyncio.gather(*calls)

    async def bulk(self, kind, jobs):
        # the documented way: one connection for many calls
        with app.connection_for_write() as conn, app.amqp.Producer(conn) as producer:
            for args in jobs:
                TASKS[kind].apply_async(kwargs=args, producer=producer)

    async def later(self, jobs, seconds):
        due = datetime.now(UTC) + timedelta(seconds=seconds)
        with app.connection_for_write() as conn, app.amqp.Producer(conn) as producer:
            for args in jobs:
                probe.apply_async(kwargs=args, eta=due, producer=producer)

    async def work(self):
        worker = app.Worker(pool="solo", loglevel="ERROR", without_gossip=True, without_mingle=True)
        threading.Thread(target=worker.start, daemon=True).start()


kit.serve(Driver())
