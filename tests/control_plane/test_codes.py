"""Classes of errors: what decides them, and what they decide."""

from __future__ import annotations

import pytest

from howdah import CodedError, Poison, RateLimited
from howdah.errors import ERROR_CODES, ArgumentError, code_of, coded, retries
from howdah_agent.executors.classify import classify, wait_in
from kit.node import drain, ended, eventually, job, node

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        ({"exit_code": 1, "stderr": "error: Rate Limit exceeded"}, "RATE_LIMITED"),
        ({"exit_code": 1, "stderr": "your quota exceeded the plan"}, "RATE_LIMITED"),
        ({"exit_code": 1, "stderr": "401 Unauthorized"}, "AUTH_FAILED"),
        ({"exit_code": 1, "stderr": "Invalid API key"}, "AUTH_FAILED"),
        ({"exit_code": 1, "stderr": "context deadline exceeded"}, "TIMEOUT"),
        ({"exit_code": 1, "stderr": "segfault"}, "AGENT_ERROR"),
        ({}, "AGENT_ERROR"),
        ({"exit_code": 124}, "TIMEOUT"),
        ({"exit_code": 77, "stderr": "rate limit"}, "AUTH_FAILED"),
        ({"status": 429, "stderr": "unauthorized"}, "RATE_LIMITED"),
        ({"status": 403}, "AUTH_FAILED"),
        ({"status": 422}, "INVALID_SPEC"),
        ({"status": 500}, "AGENT_ERROR"),
        ({"error": TimeoutError(), "stderr": "unauthorized"}, "TIMEOUT"),
        ({"error": ArgumentError("no")}, "INVALID_SPEC"),
        ({"error": RateLimited()}, "RATE_LIMITED"),
        ({"error": KeyError("x"), "stderr": "unauthorized"}, "AUTH_FAILED"),
    ],
)
def test_what_has_a_structure_decides_before_words(failure, code):
    assert classify(**failure) == code


def test_only_the_tail_of_stderr_is_looked_at():
    assert classify(exit_code=1, stderr="unauthorized\n" + "x" * 2000) == "AGENT_ERROR"
    assert classify(exit_code=1, stderr="x" * 5000 + "\nunauthorized") == "AUTH_FAILED"


def test_words_are_looked_for_in_order_and_can_be_others():
    message = "unauthorized: rate limit"
    assert classify(exit_code=1, stderr=message) == "RATE_LIMITED"
    assert (
        classify(exit_code=1, stderr=message, words=[("Unauth", "AUTH_FAILED"), ("rate limit", "X")]) == "AUTH_FAILED"
    )
    assert classify(exit_code=3, exits={3: "INVALID_SPEC"}) == "INVALID_SPEC"


def test_a_class_says_how_many_retries_it_is_worth():
    worth = {code: [retries(code, attempt) for attempt in (1, 2, 3, 100)] for code in ERROR_CODES}
    assert worth == {
        "RATE_LIMITED": [True, True, True, True],
        "AUTH_FAILED": [False, False, False, False],
        "TIMEOUT": [True, True, True, True],
        "AGENT_ERROR": [True, True, False, False],
        "INVALID_SPEC": [False, False, False, False],
        "STALE_WORKER": [True, True, True, True],
    }


def test_a_code_of_another_kind_is_no_class():
    class Elsewhere(Exception):
        code = "23505"

    assert code_of(Elsewhere()) is None
    assert code_of(SystemExit(3)) is None
    assert code_of(coded("TIMEOUT", "late")) == "TIMEOUT"


def test_only_what_is_rate_limited_holds_and_waits():
    assert (coded("TIMEOUT", "", retry_after=3, hold=True).hold, coded("TIMEOUT", "", retry_after=3).retry_after) == (
        False,
        None,
    )
    limited = coded("RATE_LIMITED", "", retry_after=3, hold=True)
    assert (limited.hold, limited.retry_after) == (True, 3)
    assert wait_in("x" * 5000) is None


async def test_no_retry_is_of_use_when_nobody_lets_us_in(app, conn):
    @app.task
    async def build() -> None:
        raise CodedError("invalid api key", code="AUTH_FAILED")

    made = await build.enqueue()
    await drain(app)

    row = await job(conn, made.id)
    assert (row["state"], row["error"], row["attempt"]) == ("failed", "AUTH_FAILED: invalid api key", 1)


async def test_an_agent_gets_two_more_tries(app, conn):
    runs = 0

    @app.task(max_attempts=10)
    async def build() -> None:
        nonlocal runs
        runs += 1
        raise CodedError("no", code="AGENT_ERROR", retry_after=0)

    made = await build.enqueue()
    async with node(app):
        row = await ended(conn, made.id)

    assert (row["state"], runs) == ("failed", 3)


async def test_what_is_rate_limited_waits_as_long_as_it_was_told(app, conn):
    @app.task
    async def build() -> None:
        raise RateLimited("not so fast", retry_after=1000)

    made = await build.enqueue()
    await drain(app)

    row = await job(conn, made.id)
    wait = await conn.fetchval("select extract(epoch from run_at - now()) from howdah.jobs where id = $1", made.id)
    assert row["state"] == "queued"
    assert 900 < wait <= 1000


async def test_poison_is_still_poison(app, conn):
    @app.task
    async def build() -> None:
        raise Poison("never")

    made = await build.enqueue()
    await drain(app)
    await eventually(lambda: job(conn, made.id))
    assert (await job(conn, made.id))["error"] == "Poison: never"
