"""Checker: finds violated guarantees in ledger and tables. It relies neither on the engine nor on the faults."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from howdah_lab.torture.history import History

EXAMPLES = 5
EFFECTS = {"jobs": ("jobs",), "tables": ("tables",), "events": ("events", "shards")}
"""Fronts whose handlers write effects, and under which names."""
ENDED = ("done", "failed", "cancelled", "queued")
"""States in which poison with an undetermined outcome may end; queued: due in ten years."""
RECORDED = ("jobs", "plain", "fleet")
"""Fronts whose work is jobs."""


class Violation(msgspec.Struct, frozen=True):
    """A violated guarantee."""

    invariant: str
    description: str
    times: int
    examples: list[str]
    lost: bool = False
    doubled: bool = False

    def __str__(self) -> str:
        return f"{self.invariant}: {self.description}: {self.times:,} ({', '.join(self.examples)})"


def check(history: History) -> list[Violation]:
    """Return all findings."""
    found = [*_effects(history), *_recorded(history), *_runs(history), *_order(history), *_tables(history)]
    return [each for each in found if each is not None]


def _effects(history: History) -> Iterator[Violation | None]:
    times = history.times
    for front, names in EFFECTS.items():
        for name in names:
            acked = {mark for source_name, mark in history.acked if source_name == front}
            seen = {mark: count for (source_name, mark), count in times.items() if source_name == name}
            twice = [mark for mark, count in seen.items() if count > 1]
            strange = [mark for mark in seen if not _possible(history, front, mark)]
            yield finding("I1", f"{name} that were accepted and never had their effect", acked - seen.keys(), lost=True)
            yield finding("I3", f"{name} that had their effect more than once", twice, doubled=True)
            yield finding("I2", f"{name} that had an effect and were never accepted", strange, doubled=True)


def _possible(history: History, front: str, mark: int) -> bool:
    known = (front, mark)
    if known in history.forgotten:
        return False
    return (
        known in history.acked
        or known in history.unknown
        or (known in history.intended and known not in history.refused)
    )


def _recorded(history: History) -> Iterator[Violation | None]:
    """Jobs and what the tables say became of them."""
    done = _in_state(history, "done")
    acked = {mark for front, mark in history.acked if front in RECORDED}
    effects = {mark for front, mark in history.times if front == "jobs"}
    promised = {mark for mark in done if ("jobs", mark) in history.intended}
    twice = [mark for mark, rows in history.jobs.items() if len(rows) > 1]
    over = [
        mark for mark, rows in history.jobs.items() if any((row["attempt"] or 0) > row["max_attempts"] for row in rows)
    ]
    misplaced = [f"{row['id']}: {row['places']}" for row in history.misplaced]
    yield finding("I1", "jobs that were accepted and are not done", acked - done, lost=True)
    yield finding("I6", "poison that did not end as it should", _unlike(history))
    yield finding("I7", "jobs that were made more than once", twice, doubled=True)
    yield finding("I3", "jobs that are done without their effect", promised - effects, lost=True)
    yield finding("I3", "jobs that had their effect and are not done", effects - done, doubled=True)
    unended = [mark for mark in done if not _ended(history, mark)]
    yield finding("I4", "jobs that are recorded as done by an attempt that never ended", unended)
    yield finding("I6", "jobs with more attempts than they may have", over)
    yield finding("I5", "jobs that are in several places, or in none", misplaced, lost=True)


def _unlike(history: History) -> Iterator[str]:
    """Poison that is in another state than its client said; where it said none, it has to fail."""
    for front, mark in history.acked:
        if front == "poison":
            expected = history.states.get((front, mark), "failed")
            rows = history.jobs.get(mark, [])
            found = [row["state"] for row in rows]
            if found != [expected] and not (expected == "any" and found and found[0] in ENDED):
                kind = rows[0]["kind"] if rows else "no job"
                yield f"{mark} ({kind}) is {', '.join(map(str, found)) or 'gone'}, not {expected}"


def _in_state(history: History, state: str) -> set[int]:
    return {mark for mark, rows in history.jobs.items() if any(row["state"] == state for row in rows)}


def _ended(history: History, mark: int) -> bool:
    """Return whether the attempt that is recorded said in the ledger that it ended."""
    attempt = max((row["attempt"] or 0) for row in history.jobs[mark])
    for front in RECORDED:
        if (front, mark) in history.intended:
            return any(end.attempt == attempt for end in history.ends.get((front, mark), ()))
    return True


def _runs(history: History) -> Iterator[Violation | None]:
    """One lease starts a job once."""
    twice = [
        f"{front} {mark}"
        for (front, mark), starts in history.starts.items()
        if front != "events" and max(Counter(start.token for start in starts).values()) > 1
    ]
    yield finding("I5", "jobs that were started twice under one lease", twice)
    holders: dict[int, set[int]] = defaultdict(set)
    for starts in history.starts.values():
        for start in starts:
            if start.token:
                holders[start.token].add(start.pid)
    given = [token for token, pids in holders.items() if len(pids) > 1]
    yield finding("I5", "tokens under which two processes ran something", given)
    # a process that was frozen during a promotion may still start a job that the new primary lacks
    never = [
        f"{front} {mark}"
        for front, mark in history.starts
        if not _possible(history, front, mark) and (front, mark) not in history.forgotten
    ]
    yield finding("I2", "jobs that ran and were never accepted", never)


def _order(history: History) -> Iterator[Violation | None]:
    """Consumers see the events of a stream in order."""
    last: dict[tuple[str, str], int] = {}
    wrong = []
    for row in history.effects:
        if row["version"]:
            key = (row["front"], row["stream"])
            if row["version"] <= last.get(key, 0):
                wrong.append(f"{row['front']} {row['stream']} {row['version']} after {last[key]}")
            last[key] = row["version"]
    yield finding("I9", "events that were applied out of order", wrong)


def _tables(history: History) -> Iterator[Violation | None]:
    """Rows of the tortured table."""
    done = {mark for mark, rows in history.rows.items() if any(row["state"] == "completed" for row in rows)}
    acked = {mark for front, mark in history.acked if front == "tables"}
    effects = {mark for front, mark in history.times if front == "tables"}
    yield finding("I1", "rows that were inserted and are not completed", acked - done, lost=True)
    yield finding("I3", "rows that are completed without their effect", done - effects, lost=True)
    yield finding("I3", "rows that had their effect and are not completed", effects - done, doubled=True)


def finding(
    invariant: str, description: str, what: Iterable[object], *, lost: bool = False, doubled: bool = False
) -> Violation | None:
    """Make a finding of what was found, with a few examples; none when there is nothing."""
    found = sorted({str(each) for each in what})
    if not found:
        return None
    return Violation(invariant, description, len(found), found[:EXAMPLES], lost, doubled)
