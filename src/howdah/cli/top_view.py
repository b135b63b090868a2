"""One snapshot drawn for a terminal, as wide and as high as the terminal is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from howdah.cli.output import STYLES, age, cell, printable
from howdah.observe.rates import BARS, Rates
from howdah.observe.snapshot import ConsumerSnapshot, NodeSnapshot, QueueSnapshot, RunningJob, Snapshot

SILENT = 15.0
"""Seconds since the last heartbeat after which a node is shown in red."""
BARS_WIDTH = 100
"""Columns of a terminal from which on bars are shown."""
HEIGHTS = " ▁▂▃▄▅▆▇█"
PLAIN_HEIGHTS = " .:-=+*#%"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopView:
    """The terminal that a snapshot is drawn for."""

    width: int
    height: int | None = None
    """``None``: not limited."""
    encoding: str = "utf-8"

    @property
    def plain(self) -> bool:
        """True if the terminal shows ASCII only."""
        return not self.encoding.lower().startswith("utf")

    def text(self, value: Any, style: str = "") -> Text:
        """Return a value as one line; control characters in it do not reach the terminal."""
        return Text(self.encodable(cell(value)), style=style, no_wrap=True, overflow=self.overflow)

    def line(self, text: str, style: str = "") -> Text:
        """Return a whole line, cut at the width of the terminal."""
        return Text(
            self.encodable(printable(" ".join(text.split()))), style=style, no_wrap=True, overflow=self.overflow
        )

    def encodable(self, line: str) -> str:
        """Return ``line`` with the characters that the encoding lacks replaced."""
        return line.encode(self.encoding, "replace").decode(self.encoding)

    @property
    def overflow(self) -> Literal["crop", "ellipsis"]:
        return "crop" if self.plain else "ellipsis"

    def bars(self, flow: Rates) -> str:
        """Return a trend as bars, the largest at full height.

        >>> TopView(width=80).bars(Rates(trend=[0, 1, 2, 4]))
        '         ▂▄█'
        """
        heights, top = PLAIN_HEIGHTS if self.plain else HEIGHTS, max(flow.trend, default=0.0) or 1.0
        # rounded up, so that small values are visible
        drawn = (heights[math.ceil(value / top * (len(heights) - 1))] for value in flow.trend)
        return "".join(drawn).rjust(BARS)[-BARS:]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a section."""

    name: str
    read: Callable[[Any, TopView], str | Text]
    right: bool = False
    min_width: int = 0
    """Columns of the terminal from which on it is shown."""


def rate(value: float) -> str:
    """Format a rate per second.

    >>> rate(0), rate(0.042), rate(7.25), rate(1234.5)
    ('0', '0.04', '7.2', '1,234')
    """
    if value <= 0:
        return "0"
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def number(value: int | None) -> str:
    """Format a count; an unknown one is a dash."""
    return "-" if value is None else f"{value:,}"


def rate_with_trend(flow: Rates, page: TopView, style: str) -> Text:
    """Return the rate with its trend over the last minute."""
    drawn = Text(no_wrap=True, end="")
    if flow.trend and page.width >= BARS_WIDTH:
        drawn.append(page.bars(flow), style).append(" ")
    return drawn.append(rate(flow.rate).rjust(6), style if flow.rate else "dim")


def state(name: str, page: TopView, calm: str = "") -> Text:
    """Return a state in its colour."""
    return page.text(name, STYLES.get(name, calm))


def heartbeat_age(node: NodeSnapshot, page: TopView) -> Text:
    """Return the age of a node's last heartbeat."""
    return page.text(age(node.beat_age), "bold red" if node.beat_age > SILENT else "")


def progress(job: RunningJob, page: TopView) -> Text:
    """Return the reported progress of a job."""
    if job.share is None:
        return Text("")
    return page.text(f"{job.share:.0%} {job.note}" if job.note else f"{job.share:.0%}", "cyan")


def queue_name(queue: QueueSnapshot, page: TopView) -> Text:
    """Return the name of a queue, marked if it is paused."""
    name = page.text(queue.name)
    if queue.paused:
        name.append(
            page.encodable(f" paused by {printable(queue.paused_by)}" if queue.paused_by else " paused"), "yellow"
        )
    elif queue.table:
        name.append(" table", "dim")
    return name


QUEUES = (
    Column("queue", queue_name),
    Column("queued", lambda queue, _: number(queue.queued), right=True),
    Column("scheduled", lambda queue, _: number(queue.scheduled), right=True, min_width=60),
    Column("running", lambda queue, _: number(queue.running), right=True, min_width=35),
    Column("oldest", lambda queue, _: age(queue.oldest_age), right=True, min_width=45),
    Column("done/s", lambda queue, page: rate_with_trend(queue.done, page, "green"), right=True, min_width=25),
    Column("failed/s", lambda queue, page: rate_with_trend(queue.failed, page, "red"), right=True, min_width=70),
)
NODES = (
    Column("node", lambda node, _: str(node.id), right=True),
    Column("name", lambda node, page: page.text(node.name)),
    Column("state", lambda node, page: state(node.state, page), min_width=30),
    Column("running", lambda node, _: f"{node.running}/{node.slots}", right=True, min_width=40),
    Column("beat", heartbeat_age, right=True),
    Column("up", lambda node, _: age(node.age), right=True, min_width=60),
    Column("version", lambda node, page: page.text(node.version), min_width=90),
    Column(
        "wake-ups", lambda node, _: "over HTTP" if node.remote else "no, polls" if node.deaf else "yes", min_width=70
    ),
)
RUNNING = (
    Column("job", lambda job, _: str(job.id), right=True),
    Column("kind", lambda job, page: page.text(job.kind)),
    Column("queue", lambda job, page: page.text(job.queue), min_width=50),
    Column("attempt", lambda job, _: str(job.attempt), right=True, min_width=90),
    Column("node", lambda job, page: page.text(job.node_name or job.node), min_width=70),
    Column("since", lambda job, _: age(job.seconds), right=True),
    Column("progress", progress, min_width=60),
)
CONSUMERS = (
    Column("consumer", lambda each, page: page.text(each.name)),
    Column("state", lambda each, page: state(each.state, page), min_width=30),
    Column("behind", lambda each, _: number(each.lag), right=True),
    Column("by", lambda each, _: age(each.lag_seconds), right=True, min_width=40),
    Column("parked", lambda each, _: number(each.parked), right=True, min_width=50),
)


@dataclass(frozen=True, slots=True)
class Section:
    """One table of the screen."""

    columns: Sequence[Column]
    rows: Sequence[Any]
    in_all: int = 0
    """The total number, if ``rows`` has only some."""

    def draw(self, page: TopView, room: int) -> Iterator[RenderableType]:
        """Return the table, with at most ``room`` lines below its heading."""
        shown = [column for column in self.columns if page.width >= column.min_width]
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1 if page.width < 60 else 2, 0, 0))
        for column in shown:
            justify: Literal["left", "right"] = "right" if column.right else "left"
            table.add_column(column.name, justify=justify, no_wrap=True, overflow=page.overflow)
        kept = self.rows if len(self.rows) <= room else _most_urgent(self.rows, max(1, room - 1))
        for row in kept:
            table.add_row(*(column.read(row, page) for column in shown))
        yield table
        more = max(len(self.rows), self.in_all) - len(kept)
        if more or not kept:
            yield page.text(f"and {more:,} more" if more else "none", "dim")


def draw(snapshot: Snapshot | None, page: TopView, *, title: str, problem: str | None = None) -> RenderableType:
    """Return the whole screen."""
    head = [page.line(title, "bold")]
    if problem is not None:
        head.append(page.line(problem, "bold red"))
    if snapshot is None:
        return Group(*head)
    head.append(_totals(snapshot, page))
    if snapshot.late:
        head.append(page.line(f"could not be read, or not in time: {', '.join(snapshot.late)}", "yellow"))
    sections = [Section(QUEUES, snapshot.queues), Section(NODES, snapshot.nodes)]
    if snapshot.running:
        in_all = sum(queue.running or 0 for queue in snapshot.queues if not queue.table)
        sections.append(Section(RUNNING, snapshot.running, in_all))
    if snapshot.consumers:
        sections.append(Section(CONSUMERS, snapshot.consumers))
    room = None if page.height is None else page.height - len(head) - 2 * len(sections)
    rooms = divide_rows([len(section.rows) for section in sections], room)
    parts: list[RenderableType] = [*head]
    for section, rows in zip(sections, rooms, strict=True):
        parts += [Text(""), *section.draw(page, rows)]
    return Group(*parts)


def divide_rows(wanted: Sequence[int], room: int | None) -> list[int]:
    """Return how many rows each section shows: all, or an equal part of the room that smaller sections leave.

    >>> divide_rows([3, 40, 5], 20), divide_rows([3, 4], None), divide_rows([5, 5], 1)
    ([3, 12, 5], [3, 4], [1, 1])
    """
    if room is None:
        return list(wanted)
    given, left = [0] * len(wanted), room
    for done, at in enumerate(sorted(range(len(wanted)), key=lambda each: wanted[each])):
        given[at] = max(1, min(wanted[at], left // (len(wanted) - done)))
        left -= given[at]
    return given


def _totals(snapshot: Snapshot, page: TopView) -> Text:
    totals = snapshot.totals
    line = Text(no_wrap=True, overflow=page.overflow)
    for name, value in (("queued", totals.queued), ("scheduled", totals.scheduled), ("running", totals.running)):
        line.append(f"{value:,}", "bold").append(f" {name}  ")
    for name, each, style in (("done/s", totals.done, "green"), ("failed/s", totals.failed, "red")):
        line.append(rate(each.rate), f"bold {style}" if each.rate else "bold").append(f" {name} ")
        if each.trend and page.width >= BARS_WIDTH:
            line.append(page.bars(each), style)
        line.append(" ")
    return line


def _most_urgent(rows: Sequence[Any], room: int) -> Sequence[Any]:
    """Return the most urgent rows when not all fit, in their original order."""
    urgent = sorted(range(len(rows)), key=lambda at: _weight(rows[at]), reverse=True)[: max(0, room)]
    return [rows[at] for at in sorted(urgent)]


def _weight(row: Any) -> float:
    match row:
        case QueueSnapshot():
            return (row.queued or 0) + (row.running or 0) + row.done.rate + row.failed.rate
        case NodeSnapshot():
            return row.beat_age
        case RunningJob():
            return row.seconds
        case ConsumerSnapshot():
            return float("inf") if row.state == "halted" else row.lag
        case _:
            return 0.0
