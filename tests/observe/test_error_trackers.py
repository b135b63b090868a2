"""Failures as error trackers such as Sentry read them from logging: the exception, its frames, and what failed."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Iterator

import pytest

from howdah import Backoff, Howdah, Secret
from howdah.worker.options import WorkerOptions
from kit.node import drain
from kit.process_handlers import raises

pytestmark = pytest.mark.anyio


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """The records of failures, of a program that configured nothing but a handler."""
    found: list[logging.LogRecord] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if hasattr(record, "outcome") or hasattr(record, "position"):
                found.append(record)

    handler = Handler()
    logging.getLogger().addHandler(handler)
    yield found
    logging.getLogger().removeHandler(handler)


class NoAddress(Exception):
    pass


async def find_address() -> None:
    raise NoAddress("nobody lives here")


async def test_a_node_in_a_program_of_ones_own_logs_failures_with_the_exception_and_its_frames(app, records):
    @app.task(max_attempts=2, retry=Backoff(first=0, jitter=0))
    async def send() -> None:
        await find_address()

    await send.enqueue()
    await app.work(WorkerOptions(drain=True))
    await asyncio.sleep(0.02)
    await app.work(WorkerOptions(drain=True))

    assert [(each.levelname, each.getMessage().split(": ", 1)[1]) for each in records] == [
        ("WARNING", "NoAddress: nobody lives here; next try in 0.0 s"),
        ("ERROR", "NoAddress: nobody lives here"),
    ]
    for record in records:
        kind, error, trace = record.exc_info
        assert kind is NoAddress
        assert str(error) == "nobody lives here"
        assert [frame.name for frame in traceback.extract_tb(trace)] == ["send", "find_address"]


async def test_failures_of_different_kinds_and_errors_have_different_templates(app: Howdah, records):
    @app.task(name="100%d", max_attempts=1)
    def first() -> None:
        raise KeyError("x")

    @app.task(max_attempts=1)
    def second() -> None:
        raise ValueError("y")

    app.task(name="third", executor="process", max_attempts=1)(raises)
    for each in app.tasks.values():
        await each.enqueue()
    await drain(app)

    assert sorted(record.msg for record in records) == [
        "job %s (100%%d) failed for good, attempt %d of %d: KeyError: %s",
        "job %s (second) failed for good, attempt %d of %d: ValueError: %s",
        "job %s (third) failed for good, attempt %d of %d: ValueError: %s",
    ]
    assert "job %s (100%%d)" not in records[0].getMessage()
    [third] = [record for record in records if record.kind == "third"]
    assert "in raises" in logging.Formatter().format(third)


async def test_the_text_of_an_exception_has_no_secret_whatever_formats_it(app: Howdah, records):
    @app.task(max_attempts=1)
    def pay(card: Secret[str]) -> None:
        raise ValueError(f"card {card} was rejected")

    await pay.enqueue("4111-1111-1111-1111")
    await drain(app)

    [record] = records
    assert record.exc_info is None  # its frames hold the secret
    assert "ValueError: card *** was rejected" in logging.Formatter().format(record)


async def test_two_nodes_in_one_process_log_each_failure_once(app: Howdah, records):
    @app.task(max_attempts=1)
    async def send() -> None:
        await find_address()

    await send.enqueue()
    await asyncio.gather(*(app.work(WorkerOptions(drain=True)) for _ in range(2)))
    await send.enqueue()
    await app.work(WorkerOptions(drain=True))

    assert len(records) == 2


async def test_a_failing_consumer_is_logged_with_its_exception(app: Howdah, records):
    failed = asyncio.Event()

    @app.consumer("Mail", max_failures=1, on_failure="park")
    async def mail(event) -> None:
        failed.set()
        await find_address()

    await app.log.append("Order-1", {"type": "OrderPlaced"})
    node = asyncio.create_task(app.work())
    async with asyncio.timeout(30):
        await failed.wait()
        while not records:
            await asyncio.sleep(0.02)
    node.cancel()
    await asyncio.wait([node])

    assert records[0].exc_info[0] is NoAddress
    assert records[0].msg.startswith("consumer Mail ")
