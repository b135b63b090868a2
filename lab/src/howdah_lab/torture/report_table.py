"""Reports of many runs as a table in a Markdown page, between two markers."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

from howdah.errors import ConfigError
from howdah.version import __version__
from howdah_lab.torture.faults import faults
from howdah_lab.torture.report import RunReport, percentile

BEGIN, END = "<!-- torture: begin -->", "<!-- torture: end -->"
HEADINGS = (
    "fault",
    "runs",
    "seconds",
    "times",
    "asked",
    "effects",
    "lost",
    "doubled",
    "stale refused",
    "recovery p50 / p99",
    "without a guard",
)
HEAD = f"| {' | '.join(HEADINGS)} |\n{'|---' * len(HEADINGS)}|\n"


def write(path: Path, reports: Sequence[RunReport], left_out: dict[str, str]) -> None:
    """Put the table into the page."""
    text = path.read_text()
    if BEGIN not in text or END not in text:
        raise ConfigError(f"{path} has no place for the table; write {BEGIN} and {END} into it, each on a line")
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    path.write_text(f"{before}{BEGIN}\n{table(reports, left_out)}{END}{after}")


def read(folder: Path) -> list[RunReport]:
    """The reports that are kept in a folder, oldest first."""
    return [msgspec.json.decode(path.read_bytes(), type=RunReport) for path in sorted(folder.glob("**/report.json"))]


def table(reports: Sequence[RunReport], left_out: dict[str, str]) -> str:
    """All runs, a row for each fault."""
    names = [name for name in faults() if any(report.faults == [name] for report in reports)]
    rows = "".join(_row(name, [report for report in reports if report.faults == [name]]) for name in names)
    missing = "".join(f"- not run: `{name}`: {why}\n" for name, why in left_out.items())
    made = f"Howdah {__version__}, Python {platform.python_version()}, {platform.system()}.\n"
    return f"\n{made}\n{HEAD}{rows}\n{missing}"


def _row(name: str, reports: Sequence[RunReport]) -> str:
    real = [report for report in reports if report.without is None]
    controls = [report for report in reports if report.without is not None]
    recovery = [second for report in real for second in report.recovery]
    median, slowest = percentile(recovery, 0.5), percentile(recovery, 0.99)
    cells = [
        f"`{name}`: {faults()[name].about}",
        str(len(real)),
        f"{sum(report.seconds for report in real):.0f}",
        f"{sum(len(report.injections) for report in real):,}",
        f"{sum(report.asked for report in real):,}",
        f"{sum(report.effects for report in real):,}",
        f"{sum(report.lost for report in real):,}",
        f"{sum(report.doubled for report in real):,}",
        f"{sum(report.stale for report in real):,}",
        "" if median is None or slowest is None else f"{median:.2f} / {slowest:.2f} s",
        ", ".join(_control(guard, controls) for guard in dict.fromkeys(each.without for each in controls)),
    ]
    if broken := [str(finding) for report in real for finding in report.unsafe + report.stuck]:
        cells[0] += f" **broken: {'; '.join(broken)}**"
    return f"| {' | '.join(cells)} |\n"


def _control(guard: str | None, controls: Sequence[RunReport]) -> str:
    """Return whether the checker noticed that a guard was off; a fault may miss everything in a run."""
    runs = [each for each in controls if each.without == guard]
    found = sum(each.noticed for each in runs)
    if found == len(runs):
        return f"{guard}: found"
    return f"{guard}: found in {found} of {len(runs)} runs" if found else f"{guard}: **not found**"
