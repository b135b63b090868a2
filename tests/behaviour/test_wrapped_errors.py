"""Poison, Retry and coded errors inside of groups and as causes count as if they were raised alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from howdah import Backoff, CodedError, Howdah, Poison, RateLimited, Retry, Transaction
from kit.node import drain, ended, eventually, node
from kit.process_handlers import raises_a_group

pytestmark = pytest.mark.anyio


class Wrapper(Exception):
    pass


async def fail_with(error: BaseException) -> None:
    raise error


async def in_task_group(error: BaseException) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(60))
        group.create_task(fail_with(error))


async def as_cause(error: BaseException) -> None:
    raise Wrapper("outer") from error


async def in_nested_groups(error: BaseException) -> None:
    raise ExceptionGroup("outer", [KeyError("k"), ExceptionGroup("inner", [ValueError("v"), error])])


async def cause_in_a_group(error: BaseException) -> None:
    await in_task_group(_caused(Wrapper("outer"), error))


async def group_as_cause(error: BaseException) -> None:
    raise Wrapper("outer") from ExceptionGroup("inner", [KeyError("k"), error])


def _caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


WAYS: list[Callable[[BaseException], Any]] = [
    in_task_group,
    as_cause,
    in_nested_groups,
    cause_in_a_group,
    group_as_cause,
]


@pytest.mark.parametrize("way", WAYS)
async def test_wrapped_poison_is_not_retried(app: Howdah, conn, way):
    @app.task
    async def send() -> None:
        await way(Poison("never"))

    made = await send.enqueue()
    await drain(app)

    row = await app.admin.get(made.id)
    assert (row.state, row.attempt) == ("failed", 1)
    assert "never" in row.error


@pytest.mark.parametrize("way", WAYS)
async def test_a_wrapped_retry_keeps_its_delay(app: Howdah, conn, way):
    @app.task(retry=Backoff(first=1, cap=1))
    async def send() -> None:
        await way(Retry("later", after=900))

    made = await send.enqueue()
    await drain(app)

    row = await app.admin.get(made.id)
    assert row.state == "queued"
    assert 890 < (row.run_at - row.enqueued_at).total_seconds() < 930


@pytest.mark.parametrize("way", WAYS)
async def test_a_wrapped_coded_error_keeps_its_code_and_its_hold(app: Howdah, conn, way):
    @app.task
    async def log_in() -> None:
        await way(CodedError("wrong key", code="AUTH_FAILED"))

    @app.task
    async def ask() -> None:
        await way(RateLimited("slow down", retry_after=500, hold=True))

    first, second = await log_in.enqueue(), await ask.enqueue()
    await drain(app)

    failed, held = await app.admin.get(first.id), await app.admin.get(second.id)
    assert failed.state == "failed"
    assert failed.error.startswith("AUTH_FAILED: ")
    assert 490 < (held.run_at - held.enqueued_at).total_seconds() < 530
    assert await conn.fetchval("select count(*) from howdah.hold where kind = 'ask'") == 1


async def test_a_group_is_named_for_the_error_in_it(app: Howdah):
    @app.task(max_attempts=1)
    async def one() -> None:
        await in_task_group(ValueError("no address"))

    @app.task(max_attempts=1)
    async def two() -> None:
        raise ExceptionGroup("both failed", [ValueError("no address"), KeyError("street")])

    @app.task(max_attempts=1)
    async def caused() -> None:
        await as_cause(ValueError("plain causes do not decide"))

    jobs = [await task.enqueue() for task in (one, two, caused)]
    await drain(app)

    errors = [(await app.admin.get(job.id)).error for job in jobs]
    assert errors == [
        "ValueError: no address",
        "ValueError: no address (one of 2 errors: both failed (2 sub-exceptions))",
        "Wrapper: outer",
    ]


async def test_rules_of_a_task_are_compared_with_the_errors_in_a_group(app: Howdah):
    @app.task(retry={KeyError: None, Exception: Backoff()})
    async def grouped() -> None:
        await in_task_group(KeyError("k"))

    @app.task(retry={KeyError: None, Exception: Backoff()})
    async def caused() -> None:
        await as_cause(KeyError("k"))

    first, second = await grouped.enqueue(), await caused.enqueue()
    await drain(app)

    assert (await app.admin.get(first.id)).state == "failed"
    assert (await app.admin.get(second.id)).state == "queued", "a cause that says nothing decides nothing"


async def test_the_outermost_error_that_says_something_counts(app: Howdah):
    @app.task
    async def despite() -> None:
        raise Retry("once more", after=700) from Poison("never")

    @app.task
    async def hidden() -> None:
        raise Wrapper("outer") from None

    made, other = await despite.enqueue(), await hidden.enqueue()
    await drain(app)

    row = await app.admin.get(made.id)
    assert row.state == "queued"
    assert (row.run_at - row.enqueued_at).total_seconds() > 690
    assert (await app.admin.get(other.id)).state == "queued"


@pytest.mark.parametrize("takes_tx", [False, True])
async def test_wrapped_poison_parks_an_event_at_once(app: Howdah, takes_tx):
    seen: list[int] = []

    async def handle(event: Any) -> None:
        seen.append(event.position)
        await in_task_group(Poison("never"))

    if takes_tx:

        @app.consumer("Mail", max_failures=5, on_failure="park")
        async def mail(event: Any, tx: Transaction) -> None:
            await handle(event)
    else:
        app.consumer("Mail", max_failures=5, on_failure="park")(handle)
    await app.log.append("Order-1", {"type": "Placed"})

    async with node(app):
        await eventually(lambda: _parked(app))

    [parked] = await app.log.admin.parked("Mail")
    assert (parked.error, parked.message, parked.failures) == ("Poison", "never", 5)
    assert len(seen) == 1


async def _parked(app: Howdah) -> bool:
    return bool(await app.log.admin.parked("Mail"))


async def test_a_process_reports_wrapped_poison(app: Howdah, conn):
    app.task(name="crunch", executor="process")(raises_a_group)
    made = await app.enqueue(app.tasks["crunch"].job())
    async with node(app):
        row = await ended(conn, made.id)

    assert row["state"] == "failed"
    assert (await app.admin.get(made.id)).error.startswith("Poison: bad")
