"""Checks that work followed the current declarations while nodes of two releases ran side by side."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from howdah_lab.torture.checker import Violation, finding
from howdah_lab.torture.release import CRONS, EVERY, NEVER, NEW, OLD, STALLED_AFTER

MOST_SILENCE = 15.0
"""Seconds without a slot after which a schedule is silent although a node with its current declaration lives."""
MOST_HEARTBEAT_GAP = 3.0
"""Seconds between two heartbeats; a node with a longer gap may have been frozen, and nothing is expected of it."""
DECLARATION_EXPIRY = 25.0
"""Seconds without a living node after which a declaration may have given way; a little less than the schedules wait."""
EPSILON = 0.05

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """A job of a schedule. Times are seconds since 1970, by the server's clock."""

    schedule: str
    release: str
    slot: float
    at: float
    """When it was enqueued."""


@dataclass(frozen=True, slots=True)
class CurrentDeclaration:
    """From here on another declaration of the consumer ``widened`` was the current one."""

    id: int
    wide: bool
    """True if it wants events of the new type."""
    reached: int
    """The position of the consumer at that moment."""


@dataclass(frozen=True, slots=True)
class AddedEvent:
    """An event of the type that only the new release consumes."""

    position: int
    mark: int
    declaration_change: int
    """The newest declaration_change its client had seen committed before it appended; 0: none."""


@dataclass(slots=True)
class ReleaseHistory:
    """Records of a run with two releases."""

    ticks: list[ScheduledJob] = field(default_factory=list)
    heartbeats: dict[int, list[float]] = field(default_factory=dict)
    """The heartbeats of every process, in seconds since 1970, by the server's clock."""
    releases: dict[int, str] = field(default_factory=dict)
    """The release of every process."""
    declarations: list[CurrentDeclaration] = field(default_factory=list)
    added: list[AddedEvent] = field(default_factory=list)
    events: set[int] = field(default_factory=set)
    """The marks of events that both releases consume, and that were acknowledged."""
    effects: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """By consumer: how often each mark had its effect."""
    resets: list[tuple[int, int, float]] = field(default_factory=list)
    """Mark of a row, process it was taken from, seconds of silence by the server's clock."""


def check(history: ReleaseHistory) -> list[Violation]:
    """Return all findings."""
    found = [*_slots(history), *_silences(history), *_consumed(history), *_resets(history)]
    return [each for each in found if each is not None]


def _slots(history: ReleaseHistory) -> Iterator[Violation | None]:
    """Every slot of the current expression once, and none of another."""
    times = Counter((tick.schedule, tick.slot) for tick in history.ticks)
    twice = [f"{name} at {slot:.0f}" for (name, slot), count in times.items() if count > 1]
    yield finding("I13", "slots that were enqueued more than once", twice, doubled=True)
    foreign = [_named(tick) for tick in history.ticks if not _is_of(tick)]
    yield finding("I13", "slots that a node fired without the current declaration", foreign, doubled=True)
    yield finding("I13", "slots that were left out", _left_out(history), lost=True)


def _named(tick: ScheduledJob) -> str:
    return f"{tick.schedule} of {tick.release} at {tick.slot:.0f}"


def _is_of(tick: ScheduledJob) -> bool:
    """Return whether the slot is one of the expression that the node declared."""
    odd = CRONS[tick.schedule][tick.release].startswith("1-59/2")
    return CRONS[tick.schedule][tick.release] != NEVER and tick.slot % EVERY == odd


def _left_out(history: ReleaseHistory) -> Iterator[str]:
    """Gaps between slots of one expression. They are filled, however late, while the declaration stays current."""
    new = _spans(history, NEW)
    for (name, release), ticks in _by_declaration(history).items():
        for one, other in pairwise(ticks):
            if other.slot - one.slot <= EVERY:
                continue
            changed = (
                bool(new) and new[0][0] < other.at
                if release == OLD
                else _longest_gap(new, one.slot, other.at) >= DECLARATION_EXPIRY
            )
            if not changed:
                yield f"{name} of {release} between {one.slot:.0f} and {other.slot:.0f}"


def _silences(history: ReleaseHistory) -> Iterator[Violation | None]:
    """A schedule fires while a node with its current declaration lives."""
    first = min((start for start, _ in _spans(history, NEW)), default=float("inf"))
    by = _by_declaration(history)
    silent = []
    for name, crons in CRONS.items():
        for release, cron in crons.items():
            if cron == NEVER:
                continue
            moments = sorted(tick.at for tick in by.get((name, release), ()))
            for start, end in _spans(history, release):
                until = end if release == NEW else min(end, first)  # from the first new node on it is not current
                if (gap := _longest(moments, start, until)) > MOST_SILENCE:
                    silent.append(f"{name} of {release} for {gap:.1f} s")
    yield finding("I13", "schedules that were silent while a node with the current declaration lived", silent)


def _consumed(history: ReleaseHistory) -> Iterator[Violation | None]:
    """Consumers handle what their current declaration wants, once."""
    for name in ("widened", "cut"):
        seen = history.effects.get(name, Counter())
        yield finding("I1", f"{name}: events that had no effect", history.events - seen.keys(), lost=True)
        twice = [mark for mark, count in seen.items() if count > 1]
        yield finding("I3", f"{name}: events that had their effect more than once", twice, doubled=True)
    seen = history.effects.get("widened", Counter())
    ends = {one.id: other.reached for one, other in pairwise(history.declarations)}
    wide = {declaration_change.id for declaration_change in history.declarations if declaration_change.wide}
    skipped = [
        event.mark
        for event in history.added
        if event.declaration_change in wide
        and event.position <= ends.get(event.declaration_change, event.position)
        and not seen[event.mark]
    ]
    yield finding(
        "I14", "widened: events of the new type that were skipped after the wider filter was current", skipped
    )


def _resets(history: ReleaseHistory) -> Iterator[Violation | None]:
    early = [
        f"row {mark} of {history.releases[pid]} after {silence:.1f} s"
        for mark, pid, silence in history.resets
        if pid in history.releases and silence < STALLED_AFTER[history.releases[pid]] - EPSILON
    ]
    yield finding("I15", "rows that were taken from their node before the silence it declared", early)


def _by_declaration(history: ReleaseHistory) -> Mapping[tuple[str, str], list[ScheduledJob]]:
    by: dict[tuple[str, str], list[ScheduledJob]] = defaultdict(list)
    for tick in sorted(history.ticks, key=lambda tick: tick.slot):
        by[tick.schedule, tick.release].append(tick)
    return by


def _spans(history: ReleaseHistory, release: str) -> list[Span]:
    """The times in which nodes of a release beat without a gap, one or another of them, oldest first."""
    lives: list[Span] = []
    for pid, heartbeats in history.heartbeats.items():
        if history.releases.get(pid) == release:
            lives += _unbroken(sorted(heartbeats))
    found: list[Span] = []
    for start, end in sorted(lives):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def _unbroken(heartbeats: Sequence[float]) -> Iterator[Span]:
    start = 0
    for at in range(1, len(heartbeats) + 1):
        if at == len(heartbeats) or heartbeats[at] - heartbeats[at - 1] > MOST_HEARTBEAT_GAP:
            yield heartbeats[start], heartbeats[at - 1]
            start = at


def _longest(moments: Sequence[float], start: float, end: float) -> float:
    """The longest time within a span in which there is no moment."""
    if end <= start:
        return 0.0
    points = [start, *moments[bisect_left(moments, start) : bisect_right(moments, end)], end]
    return max(other - one for one, other in pairwise(points))


def _longest_gap(spans: Iterable[Span], start: float, end: float) -> float:
    """The longest time between two moments that no span covers."""
    longest, reached = 0.0, start
    for one, other in spans:
        if one >= end:
            break
        longest, reached = max(longest, one - reached), max(reached, other)
    return max(longest, end - reached)
