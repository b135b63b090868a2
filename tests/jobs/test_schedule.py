"""Schedule: which slots are due, whatever was missed, and what cannot be declared."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from howdah import ConfigError, NewJob
from howdah.jobs.schedule import MOST_AT_ONCE, Schedule

NOW = datetime(2026, 5, 4, 12, 0, 0, 500_000, tzinfo=UTC)
AHEAD = timedelta(seconds=2)
SECOND = timedelta(seconds=1)


def schedule(cron="* * * * *", **options):
    return Schedule(name="s", job=NewJob(kind="tick"), cron=cron, **options)


def due(each, ago, now=NOW):
    """What is due when the slot so long ago was the next one."""
    slot = each.at_or_after(now - ago)
    slots, following = each.due(slot, now, now + AHEAD)
    assert following == each.after(slots[-1] if slots else now + AHEAD) or each.missed == "skip"
    return slots


@pytest.mark.parametrize("missed", ["once", "all", "skip"])
@pytest.mark.parametrize("ago", [0, 1, 3, 30, 59])
def test_slots_within_the_last_minute_were_not_missed(missed, ago):
    """A tick that comes late, in a process that has other things to do, loses none."""
    slots = due(schedule("* * * * * *", missed=missed), ago * SECOND)
    assert len(slots) == ago + 2
    assert [later - sooner for sooner, later in pairwise(slots)] == [SECOND] * (ago + 1)


@pytest.mark.parametrize("ago", [timedelta(minutes=5), timedelta(hours=7), timedelta(days=900)])
def test_once_runs_the_last_slot_however_many_were_missed(ago):
    assert due(schedule(), ago) == [NOW.replace(microsecond=0)]
    assert due(schedule("30 2 * * *"), ago + timedelta(days=2)) == [NOW.replace(hour=2, minute=30, microsecond=0)]


@pytest.mark.parametrize("ago", [timedelta(minutes=5), timedelta(hours=7), timedelta(days=900)])
def test_skip_leaves_out_what_was_missed_but_not_the_one_due_now(ago):
    assert due(schedule(missed="skip"), ago) == [NOW.replace(microsecond=0)]
    assert due(schedule("30 2 * * *", missed="skip"), ago) == []


def test_all_runs_every_one_a_hundred_at_a_time():
    each = schedule(missed="all")
    slot, ran = each.at_or_after(NOW - timedelta(hours=7)), []
    while True:
        slots, slot = each.due(slot, NOW, NOW + AHEAD)
        assert len(slots) <= MOST_AT_ONCE
        if not slots:
            break
        ran += slots
    assert len(ran) == len(set(ran)) == 7 * 60
    assert slot == each.after(NOW)


@pytest.mark.parametrize(
    ("cron", "day_before", "day_after"),
    [
        ("0 12 * * *", 1, 1),
        ("0 0 * * *", 1, 1),
        ("30 9 * * *", 1, 1),
        ("0 12 30 * *", 0, 0),
        ("0 */6 * * *", 4, 4),
        ("0 * * * *", 24, 24),
    ],
)
def test_a_day_that_a_zone_left_out_has_no_run_of_its_own(cron, day_before, day_after):
    """There was no 30 December 2011 in Apia."""
    apia = ZoneInfo("Pacific/Apia")
    each, slot, ran = schedule(cron, zone="Pacific/Apia"), datetime(2011, 12, 28, tzinfo=apia), []
    while slot < datetime(2012, 1, 5, tzinfo=apia):
        slot = each.after(slot)
        ran.append(slot.astimezone(apia))

    days = [slot.day for slot in ran if slot.year == 2011]
    assert (days.count(29), days.count(30), days.count(31)) == (day_before, 0, day_after)
    assert len(set(ran)) == len(ran)


def test_a_time_that_clocks_leave_out_still_runs_that_day():
    """The control: an hour left out moves the run, a day left out drops it."""
    berlin = ZoneInfo("Europe/Berlin")
    slot = schedule("30 2 * * *", zone="Europe/Berlin").after(datetime(2026, 3, 28, 12, tzinfo=UTC))
    assert slot.astimezone(berlin).isoformat() == "2026-03-29T03:00:00+02:00"


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"payload": b'{"x": '}, "its job cannot be enqueued"),
        ({"payload": b"[1]"}, "payload must be a JSON object"),
        ({"payload": b'{"x": "\xff"}'}, "its job cannot be enqueued"),
        ({"meta": b"nothing"}, "its job cannot be enqueued"),
        ({"priority": 200}, "priority must be from -100 to 100, got 200"),
        ({"priority": 1.5}, "its job cannot be enqueued"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"timeout": -1.0}, "timeout"),
        ({"queue": ""}, "queue must be 1 to 100"),
        ({"key": "a\0b"}, "key must be"),
        ({"trace": "a\0b"}, "trace must be printable"),
    ],
)
def test_a_job_that_could_not_be_enqueued_is_refused_at_its_declaration(job, words):
    with pytest.raises(ConfigError, match=f"schedule 's': its job cannot be enqueued: .*{words}|{words}"):
        Schedule(name="s", job=NewJob(**{"kind": "k", **job}), cron="* * * * *")


def test_a_declaration_is_the_same_for_the_same_words_only():
    job = NewJob(kind="k", payload=b'{"n": 1}', trace="one")
    options = {"name": "s", "job": job, "cron": "* * * * *"}
    same = Schedule(**{**options, "job": NewJob(kind="k", payload=b'{"n": 1}', trace="two")})
    others = [
        {"cron": "*/2 * * * *"},
        {"zone": "Europe/Berlin"},
        {"missed": "all"},
        *({"job": NewJob(**{"kind": "k", "payload": b'{"n": 1}', **change})} for change in CHANGES),
    ]
    assert Schedule(**options).declaration == same.declaration
    assert len({Schedule(**{**options, **each}).declaration for each in [{}, *others]}) == len(others) + 1


CHANGES = [
    {"kind": "other"},
    {"payload": b'{"n": 2}'},
    {"queue": "other"},
    {"priority": 1},
    {"max_attempts": 1},
    {"timeout": 3.0},
    {"key": "key"},
    {"meta": b"{}"},
]
