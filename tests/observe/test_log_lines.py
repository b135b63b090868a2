"""What becomes of consumers is in the log: loud where somebody has to act, and with what to do."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from howdah import Backoff, Howdah
from howdah.observe.failure_log import FailureLog, subscribe_logs
from howdah.observe.logs import configure
from kit.node import consumers_of, eventually, node

pytestmark = pytest.mark.anyio

Line = dict[str, Any]


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """JSON lines go here; logging is as before afterwards."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    configure(stream=stream, level="debug")
    stop = subscribe_logs()
    yield stream
    stop()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO, text: str = "") -> list[Line]:
    """Howdah's own lines with ``text`` in them."""
    parsed_lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in parsed_lines if line["logger"] == "howdah" and text in line["message"]]


async def one(stream: io.StringIO, text: str) -> Line:
    """The one line with ``text``, once it is there."""

    async def first_line() -> Line | None:
        found = lines(stream, text)
        return found[0] if found else None

    found: Line = await eventually(first_line)
    assert len(lines(stream, text)) == 1
    return found


async def test_a_consumer_that_halts_says_what_failed_and_what_to_do(app: Howdah, stream: io.StringIO) -> None:
    @app.consumer("Billing", max_failures=2, retry=Backoff(first=0.01, jitter=0))
    async def billing(event: Any) -> None:
        raise ValueError("no answer from postgresql://me:hunter2@db/app")

    async with node(app) as running_node:
        leads = await one(stream, "this node leads")
        starts = await one(stream, "consumer Billing starts here after position 0")
        assigned = await one(stream, "consumers were assigned: 1 moves")
        at = (await app.log.append("Order-1", {"type": "Placed", "data": {}})).position
        halted = await one(stream, "HALTED")
        ended = await one(stream, "consumer Billing ends here: halted")
        assert running_node.ready

    first, second = lines(stream, "in a row")
    assert (first["level"], first["consumer"], first["position"]) == ("WARNING", "Billing", at)
    assert (first["failures"], first["error"], first["delay"]) == (1, "ValueError", 0.01)
    assert first["message"].startswith(f"consumer Billing failed at position {at}, failure 1 in a row: ValueError: no")
    assert first["message"].endswith("me:***@db/app; next try in 0.0 s")
    assert (second["failures"], second["delay"]) == (2, None)
    assert "next try" not in second["message"]
    assert (halted["level"], halted["consumer"], halted["position"]) == ("ERROR", "Billing", at)
    assert "`howdah consumers resume Billing`" in halted["message"]
    assert "`howdah consumers skip Billing`" in halted["message"]
    assert "raise ValueError" in halted["exception"]
    assert "hunter2" not in stream.getvalue()
    assert [line["level"] for line in (leads, starts, assigned)] == ["INFO"] * 3
    assert ended["level"] == "DEBUG"
    assert [line["level"] for line in lines(stream, "this node leads no more")] == ["INFO"]


async def test_a_parked_event_is_an_error_and_the_consumer_goes_on(app: Howdah, stream: io.StringIO) -> None:
    seen: list[int] = []

    @app.consumer("Mail", on_failure="park", max_failures=1)
    async def mail(event: Any) -> None:
        if event.version == 1:
            raise KeyError("address")
        seen.append(event.version)

    async with node(app):
        await app.log.append("Order-1", [{"type": "Placed", "data": {}}] * 2)
        parked = await one(stream, "PARKED")

        async def went_on() -> bool:
            return seen == [2]

        await eventually(went_on)

    assert (parked["level"], parked["error"], parked["failures"]) == ("ERROR", "KeyError", 1)
    assert parked["message"].endswith(
        "KeyError: 'address'; it continues; `howdah consumers parked list Mail` shows them"
    )
    assert [line["level"] for line in lines(stream, "ends here: stopped")] == ["DEBUG"]


async def test_a_consumer_nobody_has_is_a_warning_once(app: Howdah, stream: io.StringIO, conn: Any) -> None:
    await conn.execute("select howdah.declare_scope('Old', 1, null, null, 0)")

    @app.consumer("Mail")
    async def mail(event: Any) -> None: ...

    async with node(app, rebalance=0.05) as running_node:
        warned = await one(stream, "no live node has the consumers")
        began = consumers_of(running_node).leader  # several looks later it is still said once
        assert began is not None
        for _ in range(3):
            await began.tick()
        assert len(lines(stream, "no live node has")) == 1
        await app.log.admin.forget("Old")
        await one(stream, "every consumer has a node again")

    assert (warned["level"], warned["unassigned"]) == ("WARNING", "Old")
    assert "`howdah consumers forget`" in warned["message"]


def test_a_flood_is_bounded_but_a_halt_is_always_said(stream: io.StringIO) -> None:
    failures = FailureLog()
    facts = {"consumer": "Mail", "part": 3, "position": 7, "failures": 1, "error": ValueError("no")}
    for _ in range(500):
        failures.on_event("consumer.fail", {**facts, "delay": 1.0})
        failures.on_event("consumer.park", facts)
    failures.on_event("consumer.halt", facts)
    failures.sum_up()

    written = lines(stream, "Mail#3")
    assert 20 <= len(written) <= 61
    assert "HALTED" in written[-1]["message"]
    assert sum(line.get("suppressed", 1) for line in lines(stream)) == 1001


@pytest.mark.parametrize(
    ("reason", "level"), [("stopped", "DEBUG"), ("no longer ours", "INFO"), ("broken off", "WARNING")]
)
def test_how_loud_an_end_is(stream: io.StringIO, reason: str, level: str) -> None:
    FailureLog().on_event("consumer.stop", {"consumer": "Mail", "part": 0, "reason": reason})

    [line] = lines(stream, f"consumer Mail ends here: {reason}")
    assert (line["level"], line["reason"]) == (level, reason)
