"""Report of a run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from howdah_lab.torture.checker import Violation
from howdah_lab.torture.guards import OF_PROGRESS
from howdah_lab.torture.injection import Injection


class RunReport(msgspec.Struct, kw_only=True):
    """Two verdicts: safety (nothing lost or doubled) and liveness (nothing stuck)."""

    faults: list[str]
    seed: int
    seconds: float
    without: str | None = None
    """The guard that was switched off."""
    injections: list[Injection]
    asked: int
    """Number of requests of clients."""
    accepted: int
    unknown: int
    """Number of requests with an unknown outcome."""
    effects: int
    lost: int
    doubled: int
    forgotten: int = 0
    """Number of accepted requests that the promoted standby had not received."""
    stale: int
    """Outcomes that came too late and were rejected."""
    recovery: list[float]
    """Seconds of everything that had to recover."""
    settled: float
    """Seconds from the end of the last fault until nothing was left to do."""
    memory: int
    """Most bytes any process had."""
    connections: int
    """Most connections all processes had open at once."""
    unsafe: list[Violation]
    stuck: list[Violation]
    folder: str

    @property
    def broken(self) -> bool:
        """True if anything was found."""
        return bool(self.unsafe or self.stuck)

    @property
    def noticed(self) -> bool:
        """True if the checker found what the missing guard protects from. A slow machine can make work stand still."""
        return bool(self.unsafe) or (self.without in OF_PROGRESS and bool(self.stuck))

    @property
    def good(self) -> bool:
        """True if it ended as it should: without a fault found, or, for a control, with the one that was expected."""
        return not self.broken if self.without is None else self.noticed

    def percentile(self, share: float) -> float | None:
        """Of the recoveries."""
        return percentile(self.recovery, share)


def all_good(reports: Sequence[RunReport]) -> bool:
    """Return whether no run broke, and every control did in one of its runs at least."""
    noticed = {(*report.faults, report.without) for report in reports if report.good}
    return all(
        report.good or (report.without is not None and (*report.faults, report.without) in noticed)
        for report in reports
    )


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value that so many are not above.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.5
    >>> percentile([], 0.99) is None
    True
    """
    if len(values) < 2:
        return values[0] if values else None
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[round(share * 100) - 1]


def lines(report: RunReport) -> list[str]:
    """Format the report as text."""
    median, slowest = report.percentile(0.5), report.percentile(0.99)
    shown = "nothing had to recover" if median is None else f"{median:.2f} s p50, {slowest:.2f} s p99"
    rows = [
        f"faults      {', '.join(report.faults)}: {len(report.injections):,} times in {report.seconds:.0f} s",
        f"asked       {report.asked:,}; accepted {report.accepted:,}, unknown {report.unknown:,}",
        f"effects     {report.effects:,}; lost {report.lost:,}, doubled {report.doubled:,}",
        f"stale       {report.stale:,} outcomes came too late and were refused",
        f"recovery    {shown}; all done {report.settled:.1f} s after the last fault",
        f"most        {report.memory / 2**20:.0f} MB in a process, {report.connections:,} connections",
        f"files       {report.folder}",
    ]
    if report.forgotten:
        rows.insert(3, f"forgotten   {report.forgotten:,} accepted that the promoted standby had not received")
    rows += [f"UNSAFE      {finding}" for finding in report.unsafe]
    rows += [f"STUCK       {finding}" for finding in report.stuck]
    if report.without is None:
        rows.append(
            "verdict     BROKEN" if report.broken else "verdict     nothing lost, nothing doubled, nothing stuck"
        )
    else:
        found = "the checker noticed" if report.noticed else "THE CHECKER NOTICED NOTHING"
        rows.append(f"verdict     without {report.without}: {found}")
    return rows
