"""The backoff table, its jitter, and the rules per error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from howdah import Backoff, ConfigError, Poison, Retry
from howdah.retry import delay_after, lineage, retry_after


def after(error, retries, attempt=1):
    return delay_after(lineage(error), retry_after(error), attempt, retries)


def test_the_table_of_delays():
    table = [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert [Backoff().steady(attempt) for attempt in range(1, 10)] == table
    assert Backoff().steady(0) == Backoff().steady(-5) == 30


@given(st.integers(1, 1000))
def test_jitter_is_a_fifth_either_way_after_the_cap(attempt):
    steady = Backoff().steady(attempt)
    assert 0.8 * steady <= Backoff().delay(attempt) <= 1.2 * steady


def test_jitter_spreads():
    delays = {Backoff().delay(20) for _ in range(200)}
    assert min(delays) < 3600 * 0.9
    assert max(delays) > 3600 * 1.1


def test_the_first_rule_that_fits_counts():
    rules = {KeyError: None, LookupError: Backoff(first=5, jitter=0), Exception: Backoff(first=7, jitter=0)}
    assert after(KeyError("k"), rules) is None
    assert after(IndexError("i"), rules) == 5
    assert after(ValueError("v"), rules) == 7
    assert 24 <= after(SystemExit(1), rules) <= 36, "what no rule names has the usual backoff"


def test_an_error_may_say_its_own_delay():
    busy = RuntimeError("busy")
    busy.retry_after = 12
    assert after(busy, Backoff()) == 12
    assert after(Retry("later", after=3), {Exception: None}) == 3
    for nonsense in (-1, float("inf"), float("nan"), True, "soon"):
        busy.retry_after = nonsense
        assert 24 <= after(busy, Backoff()) <= 36


def test_poison_is_never_retried():
    class MyPoison(Poison):
        retry_after = 5

    assert after(Poison(), Backoff()) is None
    assert after(MyPoison(), {Exception: Backoff()}) is None


@pytest.mark.parametrize(
    "bad", [{"first": -1}, {"cap": -1}, {"factor": 0.5}, {"jitter": 1}, {"jitter": -0.1}, {"first": float("nan")}]
)
def test_a_backoff_that_cannot_be_is_refused(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        Backoff(**bad)
