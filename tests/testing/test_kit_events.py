"""The test kit and events: draining consumers, and asserting what was appended."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from howdah import Backoff, Howdah, HowdahError, Poison, Transaction
from howdah.testing import JobsFailed, assert_appended_sync, drain, drain_sync, refute_appended_sync
from kit.node import eventually, node

pytestmark = pytest.mark.anyio
LATER = Backoff(first=3600, jitter=0)


@dataclass
class Placed:
    total: int
    lang: str = "en"


async def append(app: Howdah, *streams: str) -> None:
    for stream in streams:
        await app.log.append(stream, Placed(5))


# ---------------------------------------------------------------- drain


async def test_a_drain_follows_jobs_and_events_to_the_end(app):
    ran: list[str] = []

    @app.task(transactional=True)
    async def charge(tx: Transaction, order: str) -> None:
        ran.append(f"charge {order}")
        await app.log.append(f"Payment-{order}", {"type": "Paid"}, conn=tx)

    @app.task
    async def mail(order: str) -> None:
        ran.append(f"mail {order}")
        if order == "1":
            await app.log.append("Order-2", Placed(3))

    @app.consumer("orders", only=["Order"])
    async def orders(event, tx):
        await charge.using(conn=tx).enqueue(event.stream_id)

    @app.consumer("payments", only=["Payment"])
    async def payments(event, tx):
        await mail.using(conn=tx).enqueue(event.stream_id)

    await append(app, "Order-1")
    drained = await drain(app)

    assert ran == ["charge 1", "mail 1", "charge 2", "mail 2"]
    assert (drained.ok, drained.consumed, drained.errors, drained.consumer_errors) == (4, 4, (), ())
    assert await drain(app) == type(drained)()


async def test_a_drain_ends_with_consumers_of_every_kind(app):
    got: dict[str, list[str]] = {"parts": [], "scoped": [], "typed": [], "late": [], "batches": []}

    @app.consumer("parts", partitions=4, batch=3)
    async def parts(event):
        got["parts"].append(event.stream)

    @app.consumer("scoped", only=["Basket"])
    async def scoped(event):
        got["scoped"].append(event.stream)

    @app.consumer("typed", types=["nothing like it"])
    async def typed(event):
        got["typed"].append(event.stream)

    @app.consumer("late", start="end")
    async def late(event):
        got["late"].append(event.stream)

    @app.consumer("batches", batch=7)
    async def batches(events):
        got["batches"].extend(event.stream for event in events)

    @app.consumer("halted", max_failures=1)
    async def halted(event):
        raise Poison("never")

    streams = [f"Order-{n}" for n in range(30)] + ["Basket-1"]
    await append(app, *streams)
    drained = await drain(app, raise_failures=False)
    assert sorted(got["parts"]) == sorted(streams)
    assert (got["scoped"], got["typed"], got["late"], got["batches"]) == (["Basket-1"], [], [], streams)
    assert drained.consumed == 31 + 1 + 31
    assert [each.fate for each in drained.consumer_errors] == ["halted"]

    await app.log.admin.pause("batches")
    await append(app, "Basket-2")
    assert (await drain(app)).consumed == 3, "neither what is paused nor what is halted holds it up"
    assert (await drain(app)).consumed == 0
    lags = {row.name: row.lag for row in await app.log.admin.consumers()}
    assert {name: lag for name, lag in lags.items() if lag} == {"batches": 1, "halted": 32}


async def test_a_drain_waits_for_a_consumer_that_takes_its_time(app):
    @app.consumer("slow")
    async def slow(event):
        await asyncio.sleep(1.2)

    await append(app, "Order-1", "Order-2")
    assert (await drain(app)).consumed == 2


async def test_a_consumer_that_raises_fails_the_test_with_its_traceback(app):
    @app.consumer("orders", retry=LATER)
    async def orders(event):
        if event.stream == "Order-2":
            raise LookupError(f"no order {event.stream_id}")

    @app.consumer("others")
    async def others(event): ...

    @app.task
    async def fails() -> None:
        raise ValueError("a job, too")

    await append(app, "Order-1", "Order-2", "Order-3")
    with pytest.raises(JobsFailed) as raised:
        await drain(app)
    text = str(raised.value)
    assert text.startswith("1 consumer raised; pass raise_failures=False")
    assert "consumer orders: event 2, raised once, waits to be retried" in text
    assert 'raise LookupError(f"no order {event.stream_id}")' in text
    assert raised.value.drained.consumed == 4
    [failure] = raised.value.consumers
    assert (failure.consumer, failure.position, failure.error, failure.message) == (
        *("orders", 2),
        *("LookupError", "no order 2"),
    )

    await fails.enqueue()
    with pytest.raises(JobsFailed, match="1 job and 1 consumer raised"):
        await drain(app)
    drained = await drain(app, raise_failures=False)
    assert [each.failures for each in drained.consumer_errors] == [3], "one more try each time"


async def test_a_consumer_that_gets_past_its_error_is_no_failure(app):
    tries: list[int] = []

    @app.consumer("orders", retry=LATER)
    async def orders(event):
        tries.append(event.position)
        if len(tries) < 4:
            raise RuntimeError("not yet")

    await append(app, "Order-1")
    drained = await drain(app, scheduled=True)
    assert (drained.consumed, len(drained.consumer_errors), len(tries)) == (1, 3, 4)


@pytest.mark.parametrize(
    ("policy", "fate"), [("halt", "halted"), ("park", "parked"), ("stop_worker", "waits to be retried")]
)
async def test_retries_come_to_an_end(app, policy, fate):
    tries: list[int] = []

    @app.consumer("orders", on_failure=policy, max_failures=3, retry=LATER)
    async def orders(event):
        tries.append(event.position)
        raise RuntimeError("never")

    await append(app, "Order-1")
    with pytest.raises(JobsFailed) as raised:
        await drain(app, scheduled=True)
    assert [(each.fate, each.position) for each in raised.value.consumers] == [(fate, 1)]
    assert len(tries) == 3
    drained = await drain(app, raise_failures=False)
    assert len(drained.consumer_errors) == (1 if policy == "stop_worker" else 0)


async def test_poison_with_stop_worker_ends_the_drain(app):
    @app.consumer("orders", on_failure="stop_worker")
    async def orders(event):
        raise Poison("never")

    await append(app, "Order-1")
    with pytest.raises(JobsFailed, match="consumer orders: event 1, raised 5 times"):
        await drain(app)


async def test_a_consumer_that_feeds_itself_for_ever_is_given_up(app, monkeypatch):
    monkeypatch.setattr("howdah.testing.drained.ROUNDS", 3)

    @app.task
    async def again(n: int) -> None:
        await append(app, f"Order-{n}")

    @app.consumer("orders")
    async def orders(event, tx):
        await again.using(conn=tx, delay=60).enqueue(event.position)

    await append(app, "Order-1")
    with pytest.raises(HowdahError, match="still work after 3 rounds"):
        await drain(app, scheduled=True)


async def test_an_append_that_is_still_open_does_not_hold_up_a_drain(app, conn):
    got: list[str] = []

    @app.consumer("orders")
    async def orders(event):
        got.append(event.stream)

    await append(app, "Order-1")
    async with conn.transaction():
        await app.log.append("Order-2", Placed(5), conn=conn)
        await append(app, "Order-3")
        assert (await drain(app)).consumed == 1
    assert (await drain(app)).consumed == 2
    assert got == ["Order-1", "Order-2", "Order-3"]


async def test_a_drain_beside_a_node_leaves_it_what_it_has(app, database):
    other = Howdah(database.dsn)

    @other.consumer("theirs")
    async def theirs(event): ...

    @app.consumer("ours")
    async def ours(event): ...

    async with node(other):
        await eventually(lambda: _owned(other))
        await append(app, "Order-1")
        assert (await drain(app)).consumed == 1
        await app.log.wait_for("theirs", 1)
    await other.close()


async def _owned(app: Howdah) -> bool:
    return any(row.state == "running" for row in await app.log.admin.consumers())


def test_synchronous_tests_can_drain_and_assert(app):
    got: list[str] = []

    @app.consumer("orders")
    async def orders(event):
        got.append(event.stream)

    app.log.append_sync("Order-1", Placed(5))
    [event] = assert_appended_sync(app, stream="Order-1", data=Placed(5))
    assert event.version == 1
    assert drain_sync(app).consumed == 1
    assert got == ["Order-1"]
    refute_appended_sync(app, stream="Order-2")
    with pytest.raises(AssertionError, match="expected 0"):
        refute_appended_sync(app, type=Placed)
