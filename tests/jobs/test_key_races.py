"""Unique keys under contention: an enqueue either makes a job or names the live job that holds the key."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from howdah import Howdah
from kit.interleave import switch_off
from kit.node import eventually, node

pytestmark = pytest.mark.anyio

KEYS = [f"key {n}" for n in range(12)]
SECONDS = 4.0


@pytest.fixture
def work(app: Howdah):
    @app.task
    async def work(n: int) -> None: ...

    return work


async def in_bulk(app, work, made, until):
    while time.monotonic() < until:
        keys = random.sample(KEYS, 6)
        made += await app.enqueue_many([work.using(key=key).job(1) for key in keys])


async def one_by_one(app, work, made, until):
    while time.monotonic() < until:
        made.append(await work.using(key=random.choice(KEYS)).enqueue(1))


def from_a_thread(app, work, made, until):
    while time.monotonic() < until:
        made += app.enqueue_many_sync([work.using(key=key).job(1) for key in random.sample(KEYS, 4)])


async def test_a_keyed_enqueue_beside_acks_always_names_a_job(app, work, database, conn):
    producer = Howdah(database.dsn)
    made: list = []
    until = time.monotonic() + SECONDS
    async with node(app, upkeep=False):
        await asyncio.gather(
            *(in_bulk(producer, work, made, until) for _ in range(6)),
            *(one_by_one(producer, work, made, until) for _ in range(6)),
            *(asyncio.to_thread(from_a_thread, producer, work, made, until) for _ in range(3)),
        )
    await producer.close()

    assert len(made) > 500, "too few to meet an ack"
    assert [each for each in made if each.id == 0] == []
    known = {row["id"] for row in await conn.fetch("select id from howdah.job")}
    assert {each.id for each in made if each.fresh} == known
    assert {each.id for each in made} <= known
    held = await conn.fetch(
        "select key, count(*) from howdah.jobs where state = 'queued' group by key having count(*) > 1"
    )
    assert held == []


LOOK = "holders := array("
SLEEPS = "select count(*) > 0 from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
async def test_a_key_whose_holder_ends_between_the_insert_and_the_look_is_taken(app, work, conn, guarded):
    """Unguarded, the job is neither enqueued nor held."""
    held = await work.using(key="key").enqueue(1)
    await switch_off(conn, "take_keys", LOOK, f"perform pg_sleep(0.5); {LOOK}")
    if not guarded:
        await switch_off(conn, "take_keys", "array_position(holders, null) is not null", "false")
    enqueuing = asyncio.create_task(app.enqueue_many([work.using(key=key).job(2) for key in ("key", "other")]))
    await eventually(lambda: conn.fetchval(SLEEPS))
    await conn.execute("select howdah.cancel(array[$1::int8])", held.id)
    [made, other] = await enqueuing

    assert other.fresh
    assert made.fresh == guarded
    assert (made.id is not None) == guarded
    assert await conn.fetchval("select count(*) from howdah.jobs where state = 'queued'") == (2 if guarded else 1)
