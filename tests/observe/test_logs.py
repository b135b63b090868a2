"""Log lines: JSON that parses, with the job at hand and without secrets."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from howdah import Backoff, ConfigError, Howdah, Poison
from howdah.job import Job, current
from howdah.observe.failure_log import FailureLog, subscribe_logs
from howdah.observe.logs import configure
from howdah.outcome import Ack, Outcome
from kit.node import drain

pytestmark = pytest.mark.anyio


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """JSON lines go here; logging is as before afterwards."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    configure(stream=stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


async def test_failures_of_a_real_node_are_logged_as_json(app: Howdah, stream: io.StringIO) -> None:
    @app.task(name="fails", max_attempts=2, retry=Backoff(first=0.0, jitter=0))
    async def fails() -> None:
        logging.getLogger("mine").info("trying")
        raise ValueError("no answer from postgresql://me:hunter2@db/app")

    @app.task(name="poisons", queue="mail")
    def poisons() -> None:
        logging.getLogger("mine").info("in a thread")
        raise Poison("never")

    stop = subscribe_logs()
    first, second = await fails.enqueue(), await poisons.enqueue()
    await drain(app)
    await asyncio.sleep(0.05)
    await drain(app)
    stop()

    written = lines(stream)
    mine = [(line["job"], line["kind"], line["attempt"], line["queue"]) for line in written if line["logger"] == "mine"]
    assert sorted(mine) == [
        (first.id, "fails", 1, "default"),
        (first.id, "fails", 2, "default"),
        (second.id, "poisons", 1, "mail"),
    ]
    failures = {line["outcome"]: line for line in written if "outcome" in line}
    assert failures["retry"]["level"] == "WARNING"
    assert failures["retry"]["error"] == "ValueError"
    assert "me:***@db" in failures["retry"]["message"]
    assert failures["failed"]["level"] == failures["poison"]["level"] == "ERROR"
    assert failures["poison"]["message"] == f"job {second.id} (poisons) is poison, attempt 1 of 5: Poison: never"
    assert "hunter2" not in stream.getvalue()


def test_an_exception_is_text_without_locals_and_secrets(stream: io.StringIO) -> None:
    secret = "hunter2"
    try:
        raise RuntimeError(f"cannot log in with password={secret}")
    except RuntimeError:
        logging.getLogger("mine").exception("näh ☃ \x00", extra={"user": 7, "odd": float("nan"), "what": {1}})

    [line] = lines(stream)
    assert line["level"] == "ERROR"
    assert line["message"] == "näh ☃ \\0"
    assert line["at"].endswith("+00:00")
    assert line["exception"].endswith("RuntimeError: cannot log in with password=***")
    assert (line["user"], line["odd"], line["what"]) == (7, "nan", "{1}")
    assert secret not in stream.getvalue()


def test_a_flood_of_failures_is_bounded_and_counted(stream: io.StringIO) -> None:
    failures = FailureLog()
    job = Job(1, "mail", "send", 1, 5, 1, b"{}")
    acks = [Ack(job, Outcome.RETRY, 1, error="ValueError", message="no", delay=3.0) for _ in range(5000)]
    failures.on_event("job.ack", {"acks": acks})
    failures.on_event("job.ack", {"acks": [Ack(job, Outcome.OK, 1)]})
    failures.sum_up()
    failures.sum_up()

    written = lines(stream)
    assert 20 <= len(written) <= 60
    assert written[-1]["message"].endswith("more failures were not logged one by one")
    assert sum(line.get("suppressed", 1) for line in written) == 5000


def test_the_rest_of_a_flood_is_summed_up_by_whatever_happens_next(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("howdah.observe.failure_log.time.monotonic", lambda: now)
    failures = FailureLog()
    job = Job(1, "mail", "send", 1, 5, 1, b"{}")
    failures.on_event("job.ack", {"acks": [Ack(job, Outcome.FAILED, 1) for _ in range(25)]})
    failures.on_event("node.beat", {"node": 1, "lag": 0.0})
    assert len(lines(stream)) == 20
    now = 101.5
    failures.on_event("node.beat", {"node": 1, "lag": 0.0})

    assert lines(stream)[-1]["suppressed"] == 5


def test_resets_and_prunes_are_logged(stream: io.StringIO) -> None:
    failures = FailureLog()
    failures.on_event("job.reset", {"leases": 2, "requeued": 5, "ended": 1})
    failures.on_event("prune.done", {"partitions": 1, "jobs": 1000})

    reset, pruned = lines(stream)
    assert reset["message"] == "took back 2 expired leases: 5 jobs requeued, 1 ended"
    assert (reset["leases"], reset["requeued"], reset["ended"]) == (2, 5, 1)
    assert (pruned["level"], pruned["partitions"], pruned["jobs"]) == ("INFO", 1, 1000)


def test_people_read_lines_with_the_job_at_hand(stream: io.StringIO) -> None:
    terminal = Terminal()
    configure(level="debug", stream=terminal)
    token = current.set(Job(7, "mail", "send", 2, 5, 1, b"{}"))
    logging.getLogger("mine").debug("token=abc [bold]as it is[/bold]")
    current.reset(token)

    shown = re.sub("\x1b\\[[0-9;]*m", "", terminal.getvalue())
    assert "[job 7 send 2] token=*** [bold]as it is[/bold]" in shown
    assert stream.getvalue() == ""


def test_lines_for_people_can_be_had_without_a_terminal(stream: io.StringIO) -> None:
    configure(json=False, stream=stream)
    logging.getLogger("mine").info("hello")

    assert stream.getvalue().endswith("INFO    hello\n")


def test_json_can_be_had_on_a_terminal(stream: io.StringIO) -> None:
    terminal = Terminal()
    configure(json=True, stream=terminal)
    logging.getLogger("mine").info("hello")

    assert lines(terminal)[0]["message"] == "hello"


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ConfigError, match="log level 'loud' is not known; use one of debug, info"):
        configure(level="loud")
