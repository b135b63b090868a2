"""Recovery times after each fault, computed from the ledger alone."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from howdah_lab.torture.injection import Injection
from howdah_lab.torture.ledger import LedgerEntry

AGAIN = ("jobs", "plain", "tables", "fleet")
"""Fronts whose work starts again somewhere else."""
CLAIMED = ("jobs", "plain", "fleet")
"""Fronts whose start shows that jobs are claimed."""


class Recovery(msgspec.Struct, frozen=True):
    """Recovery from one injected fault; ``seconds`` of every job, or of every process, that had to recover."""

    injection: Injection
    seconds: list[float]
    missing: int = 0
    """Jobs, or processes, that never did."""
    extra: float = 0.0
    """Seconds it had besides, because another fault hit the same processes."""

    @property
    def late(self) -> list[float]:
        """Recoveries that took too long."""
        return [each for each in self.seconds if each > self.injection.within + self.extra]


def recoveries(
    entries: Sequence[LedgerEntry], injections: Sequence[Injection], gone: set[int], until: float
) -> list[Recovery]:
    """Return the recoveries of all injections that have a sign of recovery.

    ``gone``: processes that exited; ``until``: time of the last request.
    """
    starts = [entry for entry in entries if entry.what == "start"]
    signs: dict[tuple[int, str], list[float]] = defaultdict(list)
    by_mark: dict[tuple[str, int], list[LedgerEntry]] = defaultdict(list)
    for entry in starts:
        by_mark[entry.front, entry.marks[0]].append(entry)
    for entry in entries:
        if entry.what != "start" or entry.front in CLAIMED:
            signs[entry.pid, entry.what].append(entry.at)
    ended: dict[tuple[str, int], set[tuple[int, int]]] = defaultdict(set)
    for entry in entries:
        if entry.what == "end":
            ended[entry.front, entry.marks[0]].add((entry.pid, entry.token))
    found = []
    for injection in injections:
        if injection.shows == "jobs":
            found.append(_of_jobs(injection, starts, ended, by_mark, _extra(injection, injections)))
        elif injection.shows == "processes":
            found.append(_of_processes(injection, signs, injections, gone, until))
    return found


def _of_jobs(
    injection: Injection,
    starts: Sequence[LedgerEntry],
    ended: dict[tuple[str, int], set[tuple[int, int]]],
    by_mark: dict[tuple[str, int], list[LedgerEntry]],
    extra: float,
) -> Recovery:
    """Return when the unfinished jobs of the hit process were started again."""
    seconds, missing = [], 0
    for start in starts:
        key = (start.front, start.marks[0])
        if start.pid not in injection.pids or start.at > injection.at or start.front not in AGAIN:
            continue
        if (start.pid, start.token) in ended[key]:
            continue
        again = next((other.at for other in by_mark[key] if other.at > start.at), None)
        if again is None:
            missing += not ended[key]  # a thawed process may start a job that another one has finished meanwhile
        elif again > injection.at:  # otherwise it was over before, as when it failed on purpose
            seconds.append(max(0.0, again - injection.since))
    return Recovery(injection, seconds, missing, extra)


def _extra(injection: Injection, injections: Sequence[Injection]) -> float:
    """Return the extra time where faults overlap: processes may first have to recover from the other fault."""
    until = injection.since + injection.within
    others = (each for each in injections if each.fault != injection.fault and each.at < until)
    return max(0.0, max((each.since + each.within for each in others), default=until) - until)


def _of_processes(
    injection: Injection,
    signs: dict[tuple[int, str], list[float]],
    injections: Sequence[Injection],
    gone: set[int],
    until: float,
) -> Recovery:
    """Return when the affected processes showed the sign of recovery."""
    seconds, missing = [], 0
    for pid in injection.pids:
        shown = signs.get((pid, injection.sign), [])
        at = bisect_right(shown, injection.since)
        end = next((other.at for other in injections if other.at > injection.since and pid in other.pids), until)
        if at < len(shown) and shown[at] < end:
            seconds.append(shown[at] - injection.since)
        elif pid not in gone and signs.get((pid, "start")) and end > injection.since + injection.within:
            missing += 1  # there was time, and no other fault hit it
    return Recovery(injection, seconds, missing)
