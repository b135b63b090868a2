"""The checker notices everything that must never be: each kind of damage is done to good books, and found."""

from __future__ import annotations

import copy

import pytest

from howdah_lab.torture.checker import check
from howdah_lab.torture.history import from_ledger
from howdah_lab.torture.ledger import LedgerEntry


def line(what, front, *marks, **more):
    return LedgerEntry(1.0, what, front, list(marks), 7, **more)


GOOD = [
    line("intend", "jobs", 1),
    line("acked", "jobs", 1),
    line("start", "jobs", 1, attempt=1, token=10),
    line("end", "jobs", 1, attempt=1, token=10),
    line("intend", "plain", 2),
    line("acked", "plain", 2),
    line("start", "plain", 2, attempt=1, token=10),
    line("end", "plain", 2, attempt=1, token=10),
    line("intend", "tables", 3),
    line("acked", "tables", 3),
    line("start", "tables", 3, attempt=1, token=11),
    line("intend", "events", 4, 5),
    line("acked", "events", 4, 5),
    line("intend", "jobs", 6),
    line("refused", "jobs", 6),
    line("intend", "jobs", 7),
    line("unknown", "jobs", 7),
]
"""A ledger of a run in which nothing went wrong."""


def history(entries=GOOD):
    good = from_ledger(entries)
    good.effects = [
        {"front": "jobs", "mark": 1, "stream": "", "version": 0},
        {"front": "tables", "mark": 3, "stream": "", "version": 0},
        *(
            {"front": front, "mark": mark, "stream": "1", "version": version}
            for front in ("events", "shards")
            for version, mark in ((1, 4), (2, 5))
        ),
    ]
    for mark in (1, 2):
        good.jobs[mark] = [{"state": "done", "attempt": 1, "max_attempts": 100}]
    good.rows[3] = [{"state": "completed"}]
    return good


def test_good_books_are_good():
    assert check(history()) == []


def drop_effect(history):
    history.effects = history.effects[1:]


def double_effect(history):
    history.effects.append(dict(history.effects[0]))


def lose_job(history):
    del history.jobs[2]


def fail_job(history):
    history.jobs[2][0]["state"] = "failed"


def leave_job_waiting(history):
    history.jobs[1][0]["state"] = "queued"


def make_job_twice(history):
    history.jobs[1] *= 2


def believe_a_zombie(history):
    history.jobs[2][0]["attempt"] = 2


def exceed_attempts(history):
    history.jobs[2][0] |= {"attempt": 101}


def lose_event(history):
    history.effects = [row for row in history.effects if (row["front"], row["mark"]) != ("shards", 5)]


def double_event(history):
    history.effects.append(history.effects[-1])


def swap_events(history):
    history.effects[2], history.effects[3] = history.effects[3], history.effects[2]


def lose_row(history):
    history.rows[3][0]["state"] = "processing"


def rolled_back_but_done(history):
    history.effects.append({"front": "jobs", "mark": 6, "stream": "", "version": 0})


def out_of_nowhere(history):
    history.effects.append({"front": "jobs", "mark": 99, "stream": "", "version": 0})


def start_twice_under_one_lease(history):
    history.starts["plain", 2] *= 2


def misplace(history):
    history.misplaced = [{"id": 5, "places": ["ready", "lease 7"]}]


def give_a_token_twice(history):
    history.starts["plain", 2].append(LedgerEntry(2.0, "start", "plain", [2], 8, attempt=2, token=11))


DAMAGES = [
    (drop_effect, "I1"),
    (double_effect, "I3"),
    (lose_job, "I1"),
    (fail_job, "I1"),
    (leave_job_waiting, "I1"),
    (make_job_twice, "I7"),
    (believe_a_zombie, "I4"),
    (exceed_attempts, "I6"),
    (lose_event, "I1"),
    (double_event, "I3"),
    (swap_events, "I9"),
    (lose_row, "I1"),
    (rolled_back_but_done, "I2"),
    (out_of_nowhere, "I2"),
    (start_twice_under_one_lease, "I5"),
    (give_a_token_twice, "I5"),
    (misplace, "I5"),
]


@pytest.mark.parametrize(("damage", "invariant"), DAMAGES, ids=[damage.__name__ for damage, _ in DAMAGES])
def test_damage_is_noticed(damage, invariant):
    bad = copy.deepcopy(history())
    damage(bad)
    assert invariant in {finding.invariant for finding in check(bad)}


def test_what_nobody_was_told_about_may_have_happened_once_or_not_at_all():
    once = history()
    once.effects.append({"front": "jobs", "mark": 7, "stream": "", "version": 0})
    once.jobs[7] = [{"state": "done", "attempt": 1, "max_attempts": 100}]
    once.starts["jobs", 7] = [line("start", "jobs", 7, attempt=1, token=12)]
    once.ends["jobs", 7] = [line("end", "jobs", 7, attempt=1, token=12)]
    assert check(once) == []
    once.effects.append(once.effects[-1])
    assert [finding.invariant for finding in check(once)] == ["I3"]


LOST = [
    line("intend", "jobs", 20, 21),
    line("acked", "jobs", 20, 21),
    line("start", "jobs", 20, attempt=1, token=30),
    line("intend", "plain", 22),
]
"""What a primary accepted, and began, that its standby had not received; who answered the last one is not known."""


@pytest.mark.parametrize("received", [False, True])
def test_what_a_promoted_standby_had_not_received_may_be_gone_and_nothing_else(received):
    kept = [1, 2, 3, 4, 5, *([20, 21] if received else [])]
    entries = [*GOOD, *LOST, line("kept", "", *kept), line("acked", "plain", 22)]
    damaged = history(entries)
    assert (damaged.forgotten == {("jobs", 20), ("jobs", 21)}) is not received
    assert ("plain", 22) in damaged.unknown - damaged.acked
    assert ({finding.invariant for finding in check(damaged)} == {"I1"}) is received

    later = history([*entries, line("intend", "plain", 23), line("acked", "plain", 23)])
    assert "I1" in {finding.invariant for finding in check(later)}, "it was accepted after the promotion"


def test_what_a_promoted_standby_had_not_received_has_no_effect_any_more():
    damaged = history([*GOOD, *LOST, line("kept", "", 1, 2, 3, 4, 5)])
    damaged.effects.append({"front": "jobs", "mark": 20, "stream": "", "version": 0})
    assert "I2" in {finding.invariant for finding in check(damaged)}
