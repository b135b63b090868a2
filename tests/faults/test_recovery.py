"""How long it took to go on is read from the ledger alone."""

from __future__ import annotations

from howdah_lab.torture.injection import Injection
from howdah_lab.torture.ledger import LedgerEntry
from howdah_lab.torture.recovery import recoveries


def start(at, pid, mark, token=1):
    return LedgerEntry(at, "start", "jobs", [mark], pid, 1, token)


def end(at, pid, mark, token=1):
    return LedgerEntry(at, "end", "jobs", [mark], pid, 1, token)


def test_the_jobs_of_a_killed_process_are_timed_from_its_death_to_their_next_start():
    entries = [
        start(1, 7, 1),
        end(2, 7, 1),  # over before
        start(3, 7, 2, token=2),
        start(3, 8, 3, token=3),  # somebody else's
        start(14, 8, 2, token=4),
        end(15, 8, 2, token=4),
    ]
    [found] = recoveries(entries, [Injection("kill", "kill", 10.0, pids=[7], shows="jobs", within=3)], set(), 20)
    assert (found.seconds, found.missing, found.late) == ([4.0], 0, [4.0])


def test_where_two_faults_meet_there_is_time_for_both():
    entries = [start(3, 7, 2), start(24, 8, 2, token=2), end(25, 8, 2, token=2)]
    kill = Injection("kill", "kill", 10.0, pids=[7], shows="jobs", within=9)
    for other, late in (
        (Injection("dead-claim", "dead", 12.0, within=15), []),
        (Injection("dead-claim", "dead", 12.0, within=11), [14.0]),
        (Injection("dead-claim", "dead", 19.5, within=15), [14.0]),  # there had been time enough before
        (Injection("dead-claim", "dead", 9.0, within=15), []),
        (Injection("dead-claim", "dead", 9.0, within=11), [14.0]),
        (Injection("kill", "kill", 12.0, within=15), [14.0]),
    ):
        [found, *_] = recoveries(entries, [kill, other], set(), 30)
        assert (found.seconds, found.late) == ([14.0], late), other


def test_a_job_that_never_starts_again_is_missed():
    entries = [start(3, 7, 2)]
    [found] = recoveries(entries, [Injection("kill", "kill", 10.0, pids=[7], shows="jobs", within=3)], set(), 20)
    assert (found.seconds, found.missing) == ([], 1)


def test_what_somebody_else_had_ended_is_not_missed_when_one_that_woke_up_began_it():
    entries = [start(5, 8, 2, token=2), end(6, 8, 2, token=2), start(7, 7, 2, token=1)]
    [found] = recoveries(entries, [Injection("kill", "kill", 10.0, pids=[7], shows="jobs", within=3)], set(), 20)
    assert (found.seconds, found.missing) == ([], 0)


def test_a_job_that_failed_and_ran_again_before_has_nothing_to_recover():
    entries = [start(3, 7, 2), start(5, 7, 2, token=2), end(6, 7, 2, token=2)]
    [found] = recoveries(entries, [Injection("kill", "kill", 10.0, pids=[7], shows="jobs", within=3)], set(), 20)
    assert (found.seconds, found.missing) == ([], 0)


def test_processes_are_timed_from_the_healing_to_their_next_start():
    entries = [start(1, 7, 1), start(1, 8, 2), start(9, 8, 3), start(12.5, 7, 4), start(13, 8, 5)]
    injection = Injection("restart", "restart", 8.0, undone=12.0, pids=[7, 8], shows="processes", within=0.8)
    [found] = recoveries(entries, [injection], set(), 20)
    assert (sorted(found.seconds), found.missing, found.late) == ([0.5, 1.0], 0, [1.0])


def test_a_process_that_never_works_again_is_missed_unless_it_is_gone_or_hurt_again():
    entries = [start(1, 7, 1), start(1, 8, 2), start(1, 9, 3)]
    injections = [
        Injection("cut", "cut", 8.0, pids=[7, 8, 9], shows="processes", within=5),
        Injection("kill", "kill", 9.0, pids=[8]),
    ]
    [found] = recoveries(entries, injections, {9}, 20)
    assert found.missing == 1
    [early] = recoveries(entries, injections, {9}, 12)
    assert early.missing == 0, "there was no work to begin"
