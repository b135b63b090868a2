"""Liveness checks: processes and loops that did not continue, and memory or connections that grew too much."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from howdah_lab.torture.checker import EXAMPLES, Violation
from howdah_lab.torture.crew import Hand
from howdah_lab.torture.recovery import Recovery

MOST_MEMORY = 300 * 2**20
"""Bytes a process of the crew may have."""
MOST_CONNECTIONS = 40
"""Connections a process of the crew may have."""


class StuckItem(msgspec.Struct):
    """A line of a log."""

    at: str = ""
    message: str = ""


OUTAGE = re.compile(r"^(.+?) failed \(.*; trying again$", re.DOTALL)


def stuck(
    *,
    settled: bool,
    left: str,
    recovered: Sequence[Recovery],
    deserters: Sequence[Hand],
    stubborn: Sequence[Hand],
    hands: Sequence[Hand],
    connections: int,
) -> list[Violation]:
    """All that did not go on, or went too far."""
    found: list[Violation] = []
    if not settled:
        found.append(Violation("I11", "not everything was done in time after the last fault", 1, [left]))
    late = [f"{each.wound.did}: {max(each.late):.1f} s of {each.wound.within:g}" for each in recovered if each.late]
    found += _some("I11", "recoveries that took too long", late)
    never = [f"{each.wound.did}: {each.missing}" for each in recovered if each.missing]
    found += _some("I11", "wounds that never healed", never)
    found += _some("I11", "processes that ended by themselves", map(_end, deserters))
    found += _some("I11", "processes that did not end when told to", map(_end, stubborn))
    big = [f"{hand.role} {hand.pid}: {hand.peak // 2**20} MB" for hand in hands if hand.peak > MOST_MEMORY]
    found += _some("I12", "processes that took too much memory", big)
    if connections > MOST_CONNECTIONS * max(1, len(hands)):
        found.append(Violation("I12", "too many connections", connections, []))
    found += _some("I12", "outages that were reported more than once a second", _noisy(hands))
    return found


def _end(hand: Hand) -> str:
    tail = " / ".join(hand.output.read_text(errors="replace").splitlines()[-2:])[-300:]
    return f"{hand.role} {hand.pid} with {hand.process.returncode}: {tail}"


def _noisy(hands: Sequence[Hand]) -> Iterator[str]:
    for hand in hands:
        for (second, loop), times in Counter(_outages(hand)).items():
            if times > 1:
                yield f"{hand.role} {hand.pid}: {loop} {times} times at {second}"


def _outages(hand: Hand) -> Iterator[tuple[str, str]]:
    """The second and the loop of every line that says that something is out of order."""
    for line in hand.output.read_bytes().splitlines():
        try:
            said = msgspec.json.decode(line, type=StuckItem)
        except msgspec.DecodeError:  # of a process that writes no log, such as a crashing interpreter
            continue
        if found := OUTAGE.match(said.message):
            yield said.at[: len("2000-01-01T00:00:00")], found[1]


def _some(invariant: str, said: str, what: Iterable[str]) -> list[Violation]:
    found = list(what)
    return [Violation(invariant, said, len(found), found[:EXAMPLES])] if found else []
