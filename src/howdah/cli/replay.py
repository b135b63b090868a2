"""`howdah consumers replay` and `wait`: until a consumer has seen the log."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import click

from howdah.cli.common import DURATION, POSITION, Target, run, targeted
from howdah.cli.errors import one_line
from howdah.cli.output import printable
from howdah.cli.selection import confirm
from howdah.errors import HowdahError
from howdah.events.admin import To
from howdah.events.log import Log
from howdah.events.rows import ConsumerRow

LOOK = 0.2
STRIDE = 5
"""Percent between two progress lines without a terminal."""


class ReplayStart(click.ParamType[Any]):
    """A position in the log: start, end, a number or a time."""

    name = "where"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> To:
        """Parse the text."""
        if value in ("beginning", "end"):
            return value  # type: ignore[no-any-return]
        try:
            found = int(value) if value.isdecimal() else datetime.fromisoformat(value)
        except ValueError:
            found = None
        if found is None or (isinstance(found, datetime) and found.tzinfo is None):
            self.fail(
                f"{value!r} is no place in the log; write beginning, end, a position, or a time with its zone, as"
                " 2030-01-31T12:00:00Z",
                param,
                ctx,
            )
        return found


WHERE = ReplayStart()
PLACES = "beginning, end, the position before the first event, or a time with its zone."


def words_of(to: To) -> str:
    """Return a position in words."""
    match to:
        case datetime():
            return to.isoformat()
        case int():
            return f"position {to}"
        case _:
            return f"the {to}"


@click.command()
@click.argument("name")
@click.option("--from", "start", type=WHERE, metavar="PLACE", default="beginning", show_default=True, help=PLACES)
@click.option("--no-wait", is_flag=True, help="Return at once.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@targeted
def replay(target: Target, name: str, start: To, no_wait: bool, yes: bool) -> None:
    """Reset a consumer to an earlier position, and wait until it has processed all present events.

    Its read model stays as it is. Make it empty first, or let the consumer write so that twice does no harm. Exits 1
    when the consumer halts. The replay continues when this command is interrupted.

    \b
    howdah consumers replay order-totals
    howdah consumers replay order-totals --from 2030-01-31T12:00:00Z --yes
    """
    confirm(f"replay consumer {name!r} from {words_of(start)}", yes)
    run(replayed(target, name, start, no_wait))


@click.command()
@click.argument("name")
@click.option("--position", type=POSITION, metavar="N", help="Wait for this position.  [default: the current head]")
@click.option("--timeout", type=DURATION, default="30s", show_default=True, help="Maximum time to wait.")
@targeted
def wait(target: Target, name: str, position: int | None, timeout: float) -> None:
    """Wait until a consumer has processed all present events. Exits 1 on timeout or if it is halted.

    \b
    howdah consumers wait order-totals --timeout 5m
    """

    async def main() -> int:
        async with target.log() as log:
            wanted = (await log.frontier()).head if position is None else position
            try:
                await log.wait_for(name, wanted, timeout=timeout)
            except TimeoutError as error:
                why = trouble(await log.admin.consumers(name))
                raise HowdahError(f"{error}" + (f"; {why}" if why else "")) from None
            return wanted

    click.echo(f"consumer {name!r} has seen everything up to position {run(main())}")


async def replayed(target: Target, name: str, start: To, no_wait: bool) -> None:
    """Reset a consumer and, unless `--no-wait`, wait until it reaches the frontier."""
    async with target.log() as log:
        goal = (await log.frontier()).safe
        begin = await log.admin.reset(name, start)
        if no_wait:
            click.echo(f"consumer {name!r} continues after position {begin}, {goal - begin} behind the frontier")
            return
        with ReplayProgress(name, begin, goal) as meter:
            await watch(log, name, goal, meter)
    click.echo(f"consumer {name!r} has seen everything from position {begin} to {goal}")


class ReplayProgress:
    """Progress of a replay on stderr: a bar on a terminal, lines elsewhere."""

    def __init__(self, name: str, begin: int, goal: int) -> None:
        self._begin = begin
        self._whole = goal - begin
        self._said = -STRIDE
        self._note: str | None = None
        self._bar: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(printable(name), total=self._whole, rate="")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, rows: Sequence[ConsumerRow]) -> None:
        """Show the mean progress of the partitions."""
        done = sum(min(max(row.position - self._begin, 0), self._whole) for row in rows) // len(rows)
        rate = sum(row.rate for row in rows)
        if self._bar:
            self._bar.update(self._task, completed=done, rate=f"{rate:,.0f} events/s")
            return
        percent = 100 * done // self._whole if self._whole else 100
        if percent >= self._said + STRIDE or (percent == 100 and self._said < 100):
            self._said = percent
            click.echo(f"{percent:3} %, {rate:,.0f} events/s", err=True)

    def note(self, words: str | None) -> None:
        """Print, once, what blocks the consumer."""
        if words is not None and words != self._note:
            if self._bar:
                self._bar.console.print(words, markup=False, highlight=False)
            else:
                click.echo(words, err=True)
        self._note = words


async def watch(log: Log, name: str, goal: int, meter: ReplayProgress) -> None:
    """Return when every partition of a consumer has passed ``goal``."""
    while True:
        rows = await log.admin.consumers(name)
        meter.show(rows)
        if all(row.position >= goal for row in rows):
            return
        for row in rows:
            if row.state == "halted":
                raise HowdahError(
                    f"consumer {row.name!r} is halted at event {row.error_position}: {row.error}: {row.message}"
                )
        meter.note(trouble(rows))
        await asyncio.sleep(LOOK)


def trouble(rows: Sequence[ConsumerRow]) -> str | None:
    """Return what blocks a consumer, and what to do."""
    for row in rows:
        who = f"consumer {row.name!r}"
        match row.state:
            case "paused":
                return f"{who} is paused; `howdah consumers resume {row.consumer}` lets it go on"
            case "unassigned":
                return f"no live node has {who}; start a worker with its code"
            case "waiting":
                return f"{who} is assigned to no node yet"
            case "silent":
                return f"the node that has {who} is silent; another one takes over after its lease"
            case "retrying":
                return one_line(f"{who} fails at event {row.error_position}: {row.error}: {row.message}")
    return None
