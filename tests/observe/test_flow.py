"""From totals that grow now and then to rates: nothing is counted twice, and bursts of bookkeeping are smoothed."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from howdah.observe import rates as flow
from howdah.observe.rates import Finished, RateTracker

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def totals(done: Callable[[float], int], now: float, *, flush: float = 5.0, queue: str = "mail") -> list[Finished]:
    """What the minutes hold when a node adds what it has done every so many seconds."""
    minutes: dict[datetime, int] = {}
    moment = -180.0
    while moment + flush <= now:
        minute = at(moment + flush).replace(second=0, microsecond=0)
        minutes[minute] = minutes.get(minute, 0) + done(moment + flush) - done(moment)
        moment += flush
    return [Finished(minute, queue, (jobs, 0, jobs // 2)) for minute, jobs in minutes.items()]


def watch(done: Callable[[float], int], seconds: float, *, every: float = 1.0, flush: float = 5.0) -> RateTracker:
    flows, now = RateTracker(), 0.0
    while now <= seconds:
        flows.add(at(now), totals(done, now, flush=flush))
        now += every
    return flows


def test_the_first_reading_says_the_mean_of_the_last_minutes() -> None:
    flows = watch(lambda now: int(now * 10), 0)

    done = flows.of("mail")["done"]
    assert done.rate == pytest.approx(10, rel=0.1)
    assert done.trend == []


@pytest.mark.parametrize("seconds", [15, 17, 33, 59, 60, 61, 64, 200])
@pytest.mark.parametrize("every", [0.5, 1.0, 7.0])
@pytest.mark.parametrize("flush", [5.0, 5.3])
def test_a_steady_pace_is_steady_however_it_is_booked(seconds: float, every: float, flush: float) -> None:
    flows = watch(lambda now: int(now * 10), seconds, every=every, flush=flush)

    done = flows.of("mail")["done"]
    assert done.rate == pytest.approx(10, rel=0.35 if every > 5 else 0.2)
    assert len(done.trend) <= flow.BARS
    # the first of them may be cut by the beginning
    assert all(5 <= bar <= 15 for bar in done.trend[1:])


def test_a_minute_has_twelve_bars() -> None:
    assert [len(watch(int, seconds).of("mail")["done"].trend) for seconds in (0, 4, 5, 12, 60, 300)] == [
        0,
        0,
        1,
        2,
        12,
        12,
    ]


def test_what_ends_goes_to_zero() -> None:
    flows = watch(lambda now: int(min(now, 30) * 10), 50)

    done = flows.of("mail")["done"]
    assert done.rate == 0
    assert done.trend[-1] == 0
    assert max(done.trend) > 5


def test_nothing_is_counted_twice_when_a_minute_begins() -> None:
    flows, seen = RateTracker(), 0.0
    for now in range(130):
        flows.add(at(now), totals(lambda moment: int(moment * 10), now))
    seen = sum(step.counts[0] for step in flows._steps["mail"])

    assert seen == pytest.approx(10 * flow.HORIZON, abs=60)


def test_a_gap_in_the_readings_is_spread_over_the_gap() -> None:
    flows = watch(lambda now: int(now * 10), 20)
    flows.add(at(50), totals(lambda now: int(now * 10), 50))

    done = flows.of("mail")["done"]
    assert done.rate == pytest.approx(10, rel=0.2)
    assert all(5 <= bar < 20 for bar in done.trend[1:])  # where the gap begins two estimates meet


def test_a_queue_nobody_knows_stands_still() -> None:
    none = watch(int, 30).of("other")

    assert {each.rate for each in none.values()} == {0}
    assert set(none["done"].trend) == {0}


def test_minutes_are_whole_and_the_empty_ones_are_there() -> None:
    flows = RateTracker()
    assert flows.minutes(3) == []
    flows.add(
        at(10), [Finished(at(0), "a", (3, 1, 0)), Finished(at(0), "b", (2, 0, 1)), Finished(at(-7200), "a", (9, 9, 9))]
    )

    minutes = flows.minutes(3)

    assert [each.at for each in minutes] == [at(-120), at(-60), at(0)]
    assert [(each.done, each.failed, each.retried) for each in minutes] == [(0, 0, 0), (0, 0, 0), (5, 1, 1)]


def test_a_clock_that_goes_back_is_no_harm() -> None:
    flows = watch(int, 30)
    flows.add(at(-100), totals(int, -100))

    assert flows.of("mail")["done"].rate >= 0


def test_examples_in_the_code_are_true() -> None:
    assert doctest.testmod(flow).failed == 0
