"""Screen of the demo: tables on a terminal, a plain line elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from rich.console import RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from howdah_lab.demo.snapshot import DemoCheck, DemoSnapshot
from howdah_lab.demo.workload import Workload

BARS = " ▁▂▃▄▅▆▇█"


def draw(
    snapshot: DemoSnapshot, workload: Workload, rates: Sequence[float], seconds: float, title: str, dashboard: str = ""
) -> RenderableType:
    """The whole screen."""
    screen = Layout()
    screen.split_column(
        Layout(_head(snapshot, workload, rates, seconds, title, dashboard), size=5),
        Layout(name="now", ratio=3),
        Layout(_consumers(snapshot), size=len(snapshot.consumers) + 3),
        Layout(name="past", ratio=2),
    )
    screen["now"].split_row(Layout(_queues(snapshot), ratio=5), Layout(_running(snapshot), ratio=6))
    screen["past"].split_row(Layout(_failures(snapshot), ratio=3), Layout(_next(snapshot), ratio=2))
    return screen


def line(snapshot: DemoSnapshot, workload: Workload, rates: Sequence[float], seconds: float) -> str:
    """One plain line."""
    totals = snapshot.totals
    return (
        f"{seconds:4.0f}s  enqueued {totals.enqueued:,}  done {totals.done:,}  retried {totals.retried:,}"
        f"  failed {totals.failed:,}  merged {workload.merged:,}  waiting {snapshot.waiting:,}"
        f"  running {snapshot.in_flight:,}  ahead {snapshot.ahead:,}  {rates[-1] if rates else 0:,.0f}/s"
        f"  wait {waits(snapshot.median, snapshot.slowest)}"
        f"  log {snapshot.log.head if snapshot.log else 0:,}  lag {snapshot.lag:,}"
    )


def summary(
    result: DemoCheck, workload: Workload, seconds: float, found: tuple[float | None, float | None]
) -> Iterable[str]:
    """Format the final report, one line per fact."""
    facts = result.facts
    rows = (
        ("enqueued", facts["jobs"], f"{workload.merged:,} more found their unique key taken, "),
        ("done", facts["done"], f"{facts['charged']:,} orders charged, each in one commit with its job"),
        ("retried", facts["retried"], "attempts failed and were made again"),
        ("snoozed", facts["snoozed"], "looked again later, at no attempt's cost"),
        ("failed", facts["failed"], f"{facts['on_purpose']:,} on purpose"),
        ("ahead", facts["ahead"], "left for after the end"),
        ("cancelled", facts["cancelled"], "on the dashboard"),
        ("rows", facts["rows"], _rows(facts)),
        ("lost", result.lost, "every job is in exactly one place"),
        ("doubled", result.doubled, "no job twice, no order charged or shipped twice"),
        ("events", facts["events"], f"appended; order_view has {facts['behind']:,} of them before it"),
        ("astray", result.astray, "read models are the fold of the log, and the orders are what their events say"),
    )
    yield f"ran for {seconds:.1f} s"
    if result.acts:
        yield f"  {result.acts:,} actions on the dashboard: only checks that they cannot affect were made"
    for name, number, note in rows:
        if name == "cancelled" and not number:
            continue
        if name == "enqueued":
            note += f"{workload.rolled_back:,} orders rolled back and left none"
        elif name in ("lost", "doubled", "astray") and number:
            note = "this must not happen"
        yield f"  {name:<10}{number:>10,}  {note}"
    yield f"  {'throughput':<10}{facts['done'] / seconds:>10,.0f}  jobs/s over the whole time"
    yield f"  {'wait':<10}{'':>10}  {waits(*found)} (bursts not counted)"


def waits(median: float | None, slowest: float | None) -> str:
    """Format wait times.

    >>> waits(0.0021, 1.5), waits(None, None)
    ('p50 2.1 ms, p99 1.50 s', 'not known yet')
    """
    if median is None or slowest is None:
        return "not known yet"
    return f"p50 {_span(median)}, p99 {_span(slowest)}"


def sparkline(values: Sequence[float]) -> str:
    """Draw values as bars; the largest one is full.

    >>> sparkline([0, 1, 2, 4])
    ' ▂▄█'
    """
    top = max(values, default=0) or 1
    return "".join(BARS[round(max(0.0, value) / top * (len(BARS) - 1))] for value in values)


def _rows(facts: dict[str, int]) -> str:
    return (
        f"of the shop's own table: {facts['developed']:,} photos developed, {facts['waiting']:,} wait,"
        f" {facts['refused']:,} failed, {facts['empty']:,} on purpose"
    )


def _span(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _head(
    snapshot: DemoSnapshot, workload: Workload, rates: Sequence[float], seconds: float, title: str, dashboard: str
) -> RenderableType:
    totals = snapshot.totals
    numbers = (
        ("enqueued", totals.enqueued, "bold"),
        ("done", totals.done, "bold green"),
        ("retried", totals.retried, "bold yellow"),
        ("failed", totals.failed, "bold red"),
        ("merged", workload.merged, "bold blue"),
        ("waiting", snapshot.waiting, "bold"),
        ("running", snapshot.in_flight, "bold cyan"),
        ("ahead", snapshot.ahead, "bold"),
    )
    first = Text("  ").join(Text.assemble((f"{number:,}", style), f" {name}") for name, number, style in numbers)
    second = Text.assemble(
        (sparkline(rates), "green"),
        (f" {rates[-1] if rates else 0:,.0f} jobs/s", "bold"),
        f"   wait {waits(snapshot.median, snapshot.slowest)}",
    )
    nodes = Text("   ").join(
        Text(f"node {node['id']} {node['state']} {node['running']}/{node['slots']}") for node in snapshot.nodes
    )
    grid = Table.grid(padding=0)
    for row in (first, second, nodes):
        row.no_wrap = True
        row.overflow = "ellipsis"
        grid.add_row(row)
    name = Text.assemble(f"howdah demo · {seconds:.0f} s", " · " if dashboard else "", (dashboard, "bold"))
    return Panel(grid, title=name, subtitle=title, border_style="blue")


def _queues(snapshot: DemoSnapshot) -> RenderableType:
    table = _table("queue", ("ready", True), ("later", True), ("oldest", True))
    for queue in snapshot.queues:
        oldest = "" if queue["oldest"] is None else f"{max(0.0, queue['oldest']):.1f} s"
        table.add_row(queue["name"], f"{queue['ready']:,}", f"{queue['later']:,}", oldest)
    return Panel(table, title="queues", title_align="left")


def _running(snapshot: DemoSnapshot) -> RenderableType:
    table = _table(("job", True), "kind", ("attempt", True), ("node", True), ("seconds", True))
    for job in snapshot.running:
        table.add_row(str(job["id"]), job["kind"], str(job["attempt"]), str(job["node"]), f"{job['seconds']:.2f}")
    return Panel(table, title="running, oldest first", title_align="left")


def _consumers(snapshot: DemoSnapshot) -> RenderableType:
    table = _table("consumer", "state", ("node", True), ("position", True), ("lag", True), ("events/s", True))
    for each in snapshot.consumers:
        style = {"running": None, "halted": "red"}.get(each.state, "yellow")
        node = "" if each.node is None else str(each.node)
        table.add_row(
            each.name, Text(each.state, style or ""), node, f"{each.position:,}", f"{each.lag:,}", f"{each.rate:,.0f}"
        )
    log = snapshot.log
    title = f"event log: head {log.head:,}, frontier {log.frontier:,}" if log else "event log"
    return Panel(table, title=title, title_align="left")


def _failures(snapshot: DemoSnapshot) -> RenderableType:
    table = _table(("job", True), "kind", "attempt", "why")
    for failure in snapshot.failures:
        style = "yellow" if failure["outcome"] == "retry" else "red"
        attempt = f"{failure['attempt']}/{failure['max_attempts']}"
        table.add_row(str(failure["id"]), failure["kind"], attempt, Text(failure["why"]), style=style)
    return Panel(table, title="last failures (yellow: tried again)", title_align="left")


def _next(snapshot: DemoSnapshot) -> RenderableType:
    table = _table(("job", True), "kind", ("due in", True))
    for job in snapshot.next:
        table.add_row(str(job["id"]), job["kind"], f"{max(0.0, job['seconds']):.1f} s")
    return Panel(table, title="next", title_align="left")


def _table(*columns: str | tuple[str, bool]) -> Table:
    """A table of names (left) and numbers (right); the last name takes the remaining width."""
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    wide = [column for column in columns if isinstance(column, str)][-1]
    for column in columns:
        name, right = (column, False) if isinstance(column, str) else column
        justify: Literal["left", "right"] = "right" if right else "left"
        table.add_column(name, justify=justify, ratio=1 if name == wide else None, no_wrap=True, overflow="ellipsis")
    return table
