"""`howdah consumers reset`, `replay`, `skip` and `wait`: the positions of consumers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import click

from howdah.cli.output import one_line, printable
from howdah.cli.parameters import DURATION, POSITION
from howdah.cli.selection import confirm
from howdah.cli.target import Target, run, targeted
from howdah.errors import HowdahError
from howdah.events.admin import ConsumerRow, LogAdmin, To
from howdah.events.consumer import MOST_PARTITIONS
from howdah.events.log import Log

T = TypeVar("T")
PART = click.IntRange(0, MOST_PARTITIONS - 1)
POLL_INTERVAL = 0.2
"""Seconds between two checks of the progress."""
PROGRESS_STEP = 5
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


POSITION_OR_TIME = ReplayStart()
PLACES = "beginning, end, the position before the first event, or a time with its zone."


def in_words(to: To) -> str:
    """Describe a position."""
    match to:
        case datetime():
            return to.isoformat()
        case int():
            return f"position {to}"
        case _:
            return f"the {to}"


@click.command()
@click.argument("name")
@click.option(
    "--from", "start", type=POSITION_OR_TIME, metavar="PLACE", default="beginning", show_default=True, help=PLACES
)
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
    confirm(f"replay consumer {name!r} from {in_words(start)}", yes)
    run(_replay(target, name, start, no_wait))


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
                why = blocked_by(await log.admin.consumers(name))
                raise HowdahError(f"{error}" + (f"; {why}" if why else "")) from None
            return wanted

    click.echo(f"consumer {name!r} has seen everything up to position {run(main())}")


@click.command()
@click.argument("name")
@click.option("--to", type=POSITION_OR_TIME, metavar="PLACE", required=True, help=PLACES)
@click.option("--part", type=PART, metavar="N", help="Only this partition.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@targeted
def reset(target: Target, name: str, to: To, part: int | None, yes: bool) -> None:
    """Set the position of a consumer: events in between are processed again, or skipped. A halted one resumes.

    Its read model stays as it is. Make it empty first, or let the consumer write so that twice does no harm.

    \b
    howdah consumers reset order-totals --to 1200
    howdah consumers reset order-totals --to 2030-01-31T12:00:00Z --yes
    """
    which = f"consumer {name!r}" if part is None else f"part {part} of consumer {name!r}"
    confirm(f"reset {which} to {in_words(to)}", yes)
    position = with_admin(target, lambda admin: admin.reset(name, to, part=part))
    click.echo(f"{which} continues after position {position}")


@click.command()
@click.argument("name")
@click.option("--part", type=PART, metavar="N", help="Only this partition.  [default: all that failed]")
@click.option("--event", type=POSITION, metavar="POSITION", help="Only if it failed on this event.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@targeted
def skip(target: Target, name: str, part: int | None, event: int | None, yes: bool) -> None:
    """Skip the event a consumer failed on, and resume after it.

    Skips the event that the question names, and no other one it may fail on meanwhile.

    \b
    howdah consumers skip order-totals --event 1017
    """
    events = None if event is None else [event]
    if not yes:
        rows = with_admin(target, lambda admin: admin.consumers(name))
        failing = [row.error_position for row in rows if row.error_position and part in (None, row.part)]
        events = events or failing or None
        if events:
            confirm(f"leave out event {', '.join(map(str, events))} for consumer {name!r}", yes)
    for position in with_admin(target, lambda admin: admin.skip(name, part=part, events=events)):
        click.echo(f"consumer {name!r} leaves out event {position}")


def with_admin(target: Target, act: Callable[[LogAdmin], Awaitable[T]]) -> T:
    """Run an action with the admin of the event log."""

    async def main() -> T:
        async with target.log() as log:
            return await act(log.admin)

    return run(main())


async def _replay(target: Target, name: str, start: To, no_wait: bool) -> None:
    """Reset a consumer and, unless `--no-wait`, wait until it reaches the frontier."""
    async with target.log() as log:
        goal = (await log.frontier()).safe
        begin = await log.admin.reset(name, start)
        if no_wait:
            click.echo(f"consumer {name!r} continues after position {begin}, {goal - begin} behind the frontier")
            return
        with ReplayProgress(name, begin, goal) as progress:
            await watch(log, name, goal, progress)
    click.echo(f"consumer {name!r} has seen everything from position {begin} to {goal}")


class ReplayProgress:
    """Progress of a replay on stderr: a bar on a terminal, lines elsewhere."""

    def __init__(self, name: str, begin: int, goal: int) -> None:
        self._start = begin
        self._total = goal - begin
        self._printed = -PROGRESS_STEP
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
            self._task = self._bar.add_task(printable(name), total=self._total, rate="")

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
        done = sum(min(max(row.position - self._start, 0), self._total) for row in rows) // len(rows)
        rate = sum(row.rate for row in rows)
        if self._bar:
            self._bar.update(self._task, completed=done, rate=f"{rate:,.0f} events/s")
            return
        percent = 100 * done // self._total if self._total else 100
        if percent >= self._printed + PROGRESS_STEP or (percent == 100 and self._printed < 100):
            self._printed = percent
            click.echo(f"{percent:3} %, {rate:,.0f} events/s", err=True)

    def note(self, words: str | None) -> None:
        """Print, once, what blocks the consumer."""
        if words is not None and words != self._note:
            if self._bar:
                self._bar.console.print(words, markup=False, highlight=False)
            else:
                click.echo(words, err=True)
        self._note = words


async def watch(log: Log, name: str, goal: int, progress: ReplayProgress) -> None:
    """Return when every partition of a consumer has passed ``goal``."""
    while True:
        rows = await log.admin.consumers(name)
        progress.show(rows)
        if all(row.position >= goal for row in rows):
            return
        for row in rows:
            if row.state == "halted":
                raise HowdahError(
                    f"consumer {row.name!r} is halted at event {row.error_position}: {row.error}: {row.message}"
                )
        progress.note(blocked_by(rows))
        await asyncio.sleep(POLL_INTERVAL)


def blocked_by(rows: Sequence[ConsumerRow]) -> str | None:
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
