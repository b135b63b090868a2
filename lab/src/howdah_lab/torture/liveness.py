"""Liveness checks: processes and loops that did not continue, and memory or connections that grew too much."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from howdah_lab.torture.checker import EXAMPLES, Violation
from howdah_lab.torture.processes import RunProcess
from howdah_lab.torture.recovery import Recovery

MOST_MEMORY = 300 * 2**20
"""Bytes of memory a process may have."""
MOST_CONNECTIONS = 40
"""Connections a process may have."""


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
    unexpected_exits: Sequence[RunProcess],
    failed_stops: Sequence[RunProcess],
    processes: Sequence[RunProcess],
    connections: int,
) -> list[Violation]:
    """Return all violations of liveness and of the limits of resources."""
    found: list[Violation] = []
    if not settled:
        found.append(Violation("I11", "not everything was done in time after the last fault", 1, [left]))
    late = [
        f"{each.injection.did}: {max(each.late):.1f} s of {each.injection.within:g}" for each in recovered if each.late
    ]
    found += _some("I11", "recoveries that took too long", late)
    never = [f"{each.injection.did}: {each.missing}" for each in recovered if each.missing]
    found += _some("I11", "faults without recovery", never)
    found += _some("I11", "processes that ended by themselves", map(_end, unexpected_exits))
    found += _some("I11", "processes that did not exit when stopped", map(_end, failed_stops))
    big = [
        f"{process.role} {process.pid}: {process.peak // 2**20} MB"
        for process in processes
        if process.peak > MOST_MEMORY
    ]
    found += _some("I12", "processes that took too much memory", big)
    if connections > MOST_CONNECTIONS * max(1, len(processes)):
        found.append(Violation("I12", "too many connections", connections, []))
    found += _some("I12", "outages that were reported more than once a second", _noisy(processes))
    return found


def _end(process: RunProcess) -> str:
    tail = " / ".join(process.output.read_text(errors="replace").splitlines()[-2:])[-300:]
    return f"{process.role} {process.pid} with {process.popen.returncode}: {tail}"


def _noisy(processes: Sequence[RunProcess]) -> Iterator[str]:
    for process in processes:
        for (second, loop), times in Counter(_outages(process)).items():
            if times > 1:
                yield f"{process.role} {process.pid}: {loop} {times} times at {second}"


def _outages(process: RunProcess) -> Iterator[tuple[str, str]]:
    """The second and the loop of every line that says that something is out of order."""
    for line in process.output.read_bytes().splitlines():
        try:
            item = msgspec.json.decode(line, type=StuckItem)
        except msgspec.DecodeError:  # of a process that writes no log, such as a crashing interpreter
            continue
        if found := OUTAGE.match(item.message):
            yield item.at[: len("2000-01-01T00:00:00")], found[1]


def _some(invariant: str, description: str, what: Iterable[str]) -> list[Violation]:
    found = list(what)
    return [Violation(invariant, description, len(found), found[:EXAMPLES])] if found else []
