"""Whatever a handler returns or raises, its report can be stored: bounded numbers, clean texts."""

from __future__ import annotations

import math
import time
from contextvars import copy_context
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from howdah import Backoff, Cancel, RateLimited, Retry, Snooze
from howdah.errors import CodedError
from howdah.handler import Handler
from howdah.job import Job
from howdah.outcome import LONGEST_HOLD, Ack, Outcome
from howdah.redact import LONGEST_MESSAGE, LONGEST_NAME, LONGEST_TRACEBACK, handler_secrets, keep, spellings
from howdah.retry import LONGEST_DELAY
from howdah.worker.attempt import Attempt, execute_plain, outcome_of_error

TEXTS = st.text(st.characters(codec=None, exclude_categories=())) | st.sampled_from(["\0", "\ud800", "x" * 20_000])
NUMBERS = st.integers() | st.floats() | st.decimals() | st.sampled_from([10**400, -(10**400), Decimal("1e999999")])
ANYTHING = NUMBERS | TEXTS | st.none() | st.booleans() | st.lists(st.integers()) | st.binary() | st.just(object())


async def nothing() -> None: ...


def attempt(retries: object = None) -> Attempt:
    job = Job(1, "default", "nothing", 1, 5, 1, b"{}")
    return Attempt(job, Handler("nothing", nothing, retries=retries), time.perf_counter_ns())


def check(ack: Ack) -> None:
    assert math.isfinite(ack.delay)
    assert 0 <= ack.delay <= LONGEST_DELAY
    assert ack.hold is None or 0 < ack.hold <= max(LONGEST_HOLD, ack.delay)
    for text, longest in (
        (ack.error, LONGEST_NAME + 40),
        (ack.message, LONGEST_MESSAGE),
        (ack.traceback, LONGEST_TRACEBACK),
    ):
        assert text is None or ("\0" not in text and len(text) <= longest)
        (text or "").encode()


@settings(deadline=None, max_examples=200)
@given(TEXTS, TEXTS, ANYTHING, ANYTHING, st.sampled_from(["RATE_LIMITED", "AUTH_FAILED", "none"]))
def test_what_is_raised_can_be_stored(name, message, after, hold, code):
    kind = type("Strange", (Exception,), {})
    kind.__qualname__ = name
    strange = kind(message)
    strange.retry_after = after
    for error in (
        strange,
        Retry(message, after=after),
        RateLimited(message, retry_after=after, hold=hold),
        CodedError(message, code=code, retry_after=after, hold=hold),
    ):
        check(outcome_of_error(error, attempt()))


@settings(deadline=None, max_examples=200)
@given(ANYTHING)
def test_what_is_returned_can_be_stored(value):
    for returned in (Snooze(value), Cancel(value), value):

        async def handler(given=returned):
            return given

        each = attempt()
        each.handler.call = lambda _job, handler=handler: handler()
        running = execute_plain(each, 1000)
        with pytest.raises(StopIteration) as end:
            copy_context().run(running.send, None)
        ack = end.value.value
        check(ack)
        assert ack.outcome in (Outcome.OK, Outcome.SNOOZED, Outcome.CANCELLED, Outcome.RETRY)


@given(
    st.floats(0, allow_infinity=True),
    st.floats(0, allow_infinity=True),
    st.floats(1, allow_infinity=True),
    st.integers(1, 30_000),
)
def test_every_backoff_can_be_stored(first, cap, factor, number):
    assert 0 <= Backoff(first=first, cap=cap, factor=factor).delay(number) <= LONGEST_DELAY


def test_a_policy_of_a_users_own_cannot_break_an_outcome():
    class Own(Backoff):
        def delay(self, attempt: int) -> float:
            return float("nan")

    class Worse(Backoff):
        def delay(self, attempt: int) -> float:
            raise SystemExit

    for policy in (Own(), Worse()):
        ack = outcome_of_error(ValueError("x"), attempt(policy))
        check(ack)
        assert ack.outcome is Outcome.RETRY


def test_a_text_without_end_costs_no_more_than_a_long_one():
    began = time.process_time()
    ack = outcome_of_error(ValueError("postgresql://me:secret@db token=abc " * 300_000), attempt())
    assert time.process_time() - began < 2  # it took 6 s and more
    check(ack)
    assert "secret" not in ack.message + ack.traceback


@pytest.mark.parametrize("secret", ["hunter2-hunter2", "z" * 3000, "a b\nc d" * 300])
def test_a_secret_at_the_cut_is_not_shown_in_part(secret):
    """Wherever it lies: whole it is recognised, in part it would not be."""
    token = handler_secrets.set(spellings([secret]))
    try:
        for at in range(0, 12_000, 151):
            kept = keep("-" * at + secret + "-" * 40_000 + secret + "-" * at, 2000)
            assert len(kept) <= 2000
            assert set(kept.replace("characters cut", "")) <= set("-*…\n 0123456789"), at
    finally:
        handler_secrets.reset(token)
    assert secret[0] in keep(secret + "-" * 40_000, 2000)  # nobody said that it is one
