"""Handlers of chancy, which finds them by the name of their module."""

import asyncio

from chancy import QueuedJob, job

import kit

pool = None
"""Of the process that works."""


@job(queue="default")
async def nothing(*, user_id: int, email: str, template: str, number: int, tags: list):
    kit.start()


@job(queue="default")
async def pause(*, user_id: int, email: str, template: str, number: int, tags: list):
    kit.start()
    await asyncio.sleep(kit.PAUSE)


@job(queue="threads")
def plain(*, user_id: int, email: str, template: str, number: int, tags: list):
    kit.start()


@job(queue="default")
async def insert(*, user_id: int, email: str, template: str, number: int, tags: list, context: QueuedJob):
    kit.start()
    async with pool.connection() as conn:
        await conn.execute("insert into bench_effect (job) values (%s)", (str(context.id),))


@job(queue="default")
async def probe(*, began: float):
    kit.probe(began)
