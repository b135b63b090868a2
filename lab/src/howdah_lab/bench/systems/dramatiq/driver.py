"""Dramatiq on Redis. Its handlers are plain functions."""

import asyncio
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor

os.environ["dramatiq_queue_prefetch"] = "1000"  # noqa: SIM112 - read when it is imported

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker

import kit

# callers wait for a connection instead of being refused one
pool = redis.BlockingConnectionPool.from_url(f"unix://{kit.REDIS}", max_connections=100)
broker = RedisBroker(client=redis.Redis(connection_pool=pool))
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="plain")
def plain(**args):
    kit.start()


@dramatiq.actor(actor_name="probe")
def probe(began):
    kit.probe(began)


TASKS = {"plain": plain, "probe": probe}


class Driver(kit.Driver):
    packages = ("dramatiq", "redis")

    async def setup(self): ...

    async def open(self):
        self.threads = ThreadPoolExecutor(1000)
        broker.client.ping()

    async def one(self, kind, args):
        TASKS[kind].send(**args)

    async def enqueue_callers(self, callers, jobs, kind):
        each = int(jobs) // int(callers)

        def call(first):
            for number in range(first, first + each):
                TASKS[kind].send(**kit.arguments(number))

        loop = asyncio.get_running_loop()
        calls = (loop.run_in_executor(self.threads, call, caller * each) for caller in range(int(callers)))
        await asyncio.gather(*calls)

    async def bulk(self, kind, jobs):
        for args in jobs:
            TASKS[kind].send(**args)

    async def later(self, jobs, seconds):
        due = time.monotonic() + seconds
        for args in jobs:
            probe.send_with_options(kwargs=args, delay=math.ceil((due - time.monotonic()) * 1000))

    async def work(self):
        self.worker = dramatiq.Worker(broker, worker_threads=8)
        self.worker.start()


kit.serve(Driver())
