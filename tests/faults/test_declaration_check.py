"""The checker of two releases: it accepts every valid history of nodes, and finds each violation."""

from __future__ import annotations

import copy
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from howdah_lab.torture.declaration_check import (
    DECLARATION_EXPIRY,
    AddedEvent,
    CurrentDeclaration,
    ReleaseHistory,
    ScheduledJob,
    check,
)
from howdah_lab.torture.release import NEW, OLD

OLD_NODE, NEW_NODE = 1, 2
LENGTH = 100
MIDDLE = 40
"""The second in which the first new node comes."""


def good_history() -> ReleaseHistory:
    """A run in which a new node comes to an old one, and both stay."""
    return ReleaseHistory(
        ticks=[
            *(ScheduledJob("ticks", OLD, float(slot), slot - 1.5) for slot in range(0, MIDDLE, 2)),
            *(ScheduledJob("ticks", NEW, float(slot), slot - 1.5) for slot in range(MIDDLE + 1, LENGTH, 2)),
            *(ScheduledJob("rare", NEW, float(slot), slot - 1.5) for slot in range(MIDDLE, LENGTH, 2)),
        ],
        heartbeats={
            OLD_NODE: [float(second) for second in range(LENGTH)],
            NEW_NODE: [float(second) for second in range(MIDDLE, LENGTH)],
        },
        releases={OLD_NODE: OLD, NEW_NODE: NEW},
        declarations=[
            CurrentDeclaration(1, True, 10),
            CurrentDeclaration(2, False, 20),
            CurrentDeclaration(3, True, 25),
        ],
        added=[
            AddedEvent(5, 105, 0),
            AddedEvent(15, 115, 1),
            AddedEvent(21, 121, 1),
            AddedEvent(23, 123, 2),
            AddedEvent(30, 130, 3),
        ],
        events={1, 2, 3},
        effects={"widened": Counter([1, 2, 3, 115, 130]), "cut": Counter([1, 2, 3])},
        resets=[(7, OLD_NODE, 4.2), (8, NEW_NODE, 10.2)],
    )


def test_good_books_are_good():
    assert check(good_history()) == []


def drop_a_slot(good_history):
    good_history.ticks.remove(next(tick for tick in good_history.ticks if tick.slot == 61))


def drop_a_slot_of_the_old(good_history):
    good_history.ticks.remove(next(tick for tick in good_history.ticks if tick.slot == 20))


def fire_twice(good_history):
    good_history.ticks.append(good_history.ticks[-1])


def fire_for_another(good_history):
    good_history.ticks.append(ScheduledJob("ticks", OLD, 61.0, 60.0))


def fire_what_never_comes(good_history):
    good_history.ticks.append(ScheduledJob("rare", OLD, 62.0, 60.0))


def silence_the_new(good_history):
    good_history.ticks = [tick for tick in good_history.ticks if tick.schedule != "rare" or tick.slot < 60]


def silence_from_the_start(good_history):
    good_history.ticks = [tick for tick in good_history.ticks if tick.schedule != "rare"]


def silence_the_old(good_history):
    good_history.ticks = [tick for tick in good_history.ticks if tick.release != OLD]


def skip_an_event(good_history):
    del good_history.effects["widened"][130]


def skip_an_event_of_a_reign_that_is_over(good_history):
    del good_history.effects["widened"][115]


def skip_an_event_of_both(good_history):
    del good_history.effects["cut"][2]


def double_an_event(good_history):
    good_history.effects["cut"][2] += 1


def double_an_event_of_the_new_type(good_history):
    good_history.effects["widened"][130] += 1


def take_a_row_early(good_history):
    good_history.resets.append((9, NEW_NODE, 4.2))


DAMAGES = [
    (drop_a_slot, "left out"),
    (drop_a_slot_of_the_old, "left out"),
    (fire_twice, "more than once"),
    (fire_for_another, "without the current declaration"),
    (fire_what_never_comes, "without the current declaration"),
    (silence_the_new, "silent"),
    (silence_from_the_start, "silent"),
    (silence_the_old, "silent"),
    (skip_an_event, "skipped"),
    (skip_an_event_of_a_reign_that_is_over, "skipped"),
    (skip_an_event_of_both, "no effect"),
    (double_an_event, "more than once"),
    (double_an_event_of_the_new_type, "more than once"),
    (take_a_row_early, "before the silence"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES, ids=[damage.__name__ for damage, _ in DAMAGES])
def test_damage_is_found(damage, message):
    bad = copy.deepcopy(good_history())
    damage(bad)
    assert [each.description for each in check(bad) if message in each.description]


def history(spans: list[tuple[int, int]]) -> ReleaseHistory:
    """What nodes of the new release that live in these spans of seconds leave behind, beside an old one.

    New nodes fire while one of them lives; after 30 s without any the old one does. Slots that passed while the
    declaration stayed current are made up for.
    """
    alive = {second for start, length in spans for second in range(start, start + length)}
    found = ReleaseHistory(releases={OLD_NODE: OLD}, heartbeats={OLD_NODE: [float(second) for second in range(LENGTH)]})
    for pid, (start, length) in enumerate(spans, NEW_NODE):
        found.releases[pid] = NEW
        found.heartbeats[pid] = [float(second) for second in range(start, start + length)]
    current, seen, pending = OLD, -1000, 0
    for second in range(LENGTH):
        if second in alive:
            seen = second
        standing = NEW if second - seen <= 30 else OLD
        if standing != current:
            current, pending = standing, second
        if current == NEW and second not in alive:
            continue  # there is nobody to fire
        for slot in range(pending, second + 1):
            if slot % 2 == (current == NEW):
                found.ticks.append(ScheduledJob("ticks", current, float(slot), float(second)))
            elif current == NEW:
                found.ticks.append(ScheduledJob("rare", current, float(slot), float(second)))
        pending = second + 1
    return found


SPANS = st.lists(st.tuples(st.integers(0, LENGTH - 1), st.integers(1, 60)), max_size=5).map(
    lambda spans: [(start, min(length, LENGTH - start)) for start, length in spans]
)


@settings(deadline=None, max_examples=200)
@given(SPANS)
def test_whenever_nodes_come_and_go_a_good_history_is_good(spans):
    assert check(history(spans)) == []


@settings(deadline=None, max_examples=200)
@given(SPANS, st.data())
def test_whenever_nodes_come_and_go_a_slot_less_or_more_is_found(spans, data):
    bad = history(spans)
    tick = data.draw(st.sampled_from(bad.ticks))
    between = [
        each
        for each in bad.ticks
        if (each.schedule, each.release) == (tick.schedule, tick.release) and abs(each.slot - tick.slot) == 2
    ]
    # what was made up for after a long time may as well have been the slots of a declaration that had given way
    prompt = all(each.at - each.slot < DECLARATION_EXPIRY - 5 for each in (tick, *between))
    stays = tick.release == NEW or tick.slot + 2 < min((start for start, _ in spans), default=LENGTH)
    if len(between) == 2 and prompt and stays:
        bad.ticks.remove(tick)
        assert any("left out" in each.description for each in check(bad))
        bad.ticks.append(tick)
    bad.ticks.append(tick)
    assert any("more than once" in each.description for each in check(bad))
