"""`howdah consumers`: list and manage the consumers of the event log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TextIO, TypeVar

import asyncpg
import click
import msgspec

from howdah.cli.common import POSITION, Target, as_json, finish, run, targeted, user
from howdah.cli.errors import INCOMPLETE, one_line
from howdah.cli.output import age, cell, dump, printable, show
from howdah.cli.parked import parked
from howdah.cli.replay import PLACES, WHERE, replay, wait, words_of
from howdah.cli.selection import confirm
from howdah.errors import HowdahError
from howdah.events.admin import LogAdmin, To
from howdah.events.consumer import MOST_PARTITIONS
from howdah.events.rows import ConsumerRow

T = TypeVar("T")
PART = click.IntRange(0, MOST_PARTITIONS - 1)
COLUMNS: dict[str, Callable[[ConsumerRow], object]] = {
    "name": lambda row: row.name,
    "state": lambda row: row.state,
    "node": lambda row: row.node_name,
    "position": lambda row: row.position,
    "lag": lambda row: row.lag,
    "lag time": lambda row: age(row.lag_seconds),
    "rate": lambda row: row.rate,
    "parked": lambda row: row.parked,
    "last error": lambda row: error_of(row),
}


@click.group(invoke_without_command=True)
@as_json
@targeted
@click.pass_context
def consumers(ctx: click.Context, target: Target, as_json: bool) -> None:
    """List the consumers of the event log by partition: owner, position, lag, rate, last error.

    `lag` counts positions up to the frontier, also those of events a consumer does not want; `lag time` is the age of
    the first event it has not seen.

    \b
    howdah consumers
    howdah consumers replay order-totals
    """
    if ctx.invoked_subcommand is not None:
        if as_json or target != Target():
            raise click.UsageError(f"options go behind the verb: howdah consumers {ctx.invoked_subcommand} … --dsn …")
        return
    found = acted(target, LogAdmin.consumers)
    show(found, COLUMNS, as_json=as_json, empty="no consumers yet; declare one with app.consumer(…), and run a worker")


@consumers.command("show")
@click.argument("name")
@as_json
@targeted
def show_(target: Target, name: str, as_json: bool) -> None:
    """Show one consumer in detail, with the traceback of its last error.

    \b
    howdah consumers show order-totals
    """
    found = acted(target, lambda admin: admin.consumers(name))
    if as_json:
        dump(found)
        return
    for place, row in enumerate(found):
        if place:
            click.echo()
        describe(row)


@consumers.command()
@click.argument("name")
@click.option("--by", help="Name to display as the one who paused it.  [default: your user name]")
@targeted
def pause(target: Target, name: str, by: str | None) -> None:
    """Pause a consumer on every node; the current batch is finished.

    \b
    howdah consumers pause order-totals
    """
    acted(target, lambda admin: admin.pause(name, by or user()))
    click.echo(f"consumer {name!r} is paused")


@consumers.command()
@click.argument("name")
@targeted
def resume(target: Target, name: str) -> None:
    """Resume a paused or halted consumer at its position; exits 1 if it was not paused.

    A halted one tries the event it failed on again.

    \b
    howdah consumers resume order-totals
    """
    rested = acted(target, lambda admin: admin.resume(name))
    click.echo(f"consumer {name!r} {'resumed' if rested else 'was neither paused nor halted'}")
    finish(0 if rested else INCOMPLETE)


@consumers.command()
@click.argument("name")
@click.option("--to", type=WHERE, metavar="PLACE", required=True, help=PLACES)
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
    confirm(f"reset {which} to {words_of(to)}", yes)
    position = acted(target, lambda admin: admin.reset(name, to, part=part))
    click.echo(f"{which} continues after position {position}")


@consumers.command()
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
        rows = acted(target, lambda admin: admin.consumers(name))
        failing = [row.error_position for row in rows if row.error_position and part in (None, row.part)]
        events = events or failing or None
        if events:
            confirm(f"leave out event {', '.join(map(str, events))} for consumer {name!r}", yes)
    for position in acted(target, lambda admin: admin.skip(name, part=part, events=events)):
        click.echo(f"consumer {name!r} leaves out event {position}")


@consumers.command()
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@targeted
def forget(target: Target, name: str, yes: bool) -> None:
    """Delete a consumer that no live node declares: its checkpoint and its parked events.

    \b
    howdah consumers forget order-totals-old --yes
    """
    confirm(f"forget consumer {name!r}, its checkpoint and what it parked", yes)
    acted(target, lambda admin: admin.forget(name))
    click.echo(f"consumer {name!r} is forgotten")


@consumers.command()
@click.argument("old")
@click.argument("new")
@click.option("--sql", "file", type=click.File(encoding="utf-8"), required=True, help="The statements; - for stdin.")
@targeted
def switch(target: Target, old: str, new: str, file: TextIO) -> None:
    """Replace a read model by one that was rebuilt beside it.

    When NEW has seen all that OLD has, runs the statements of a file, which point readers to the new read model, and
    pauses OLD: one transaction, so the file has no begin and commit of its own. Exits 1 when NEW is still behind.

    \b
    howdah consumers switch order-totals order-totals-2 --sql rename.sql
    """
    statement = file.read()
    if not statement.strip():
        raise click.UsageError("--sql holds no statement")
    try:
        position = acted(target, lambda admin: admin.switch(old, new, statement))
    except asyncpg.PostgresError as error:
        raise HowdahError(f"the statements failed, so nothing was changed: {error}") from error
    click.echo(f"switched: consumer {new!r} is at position {position}, {old!r} is paused")


consumers.add_command(replay)
consumers.add_command(wait)
consumers.add_command(parked)


def acted(target: Target, act: Callable[[LogAdmin], Awaitable[T]]) -> T:
    """Run an action with the admin of the event log."""

    async def main() -> T:
        async with target.log() as log:
            return await act(log.admin)

    return run(main())


def describe(row: ConsumerRow) -> None:
    """Print one consumer, a line per field."""
    facts = msgspec.structs.asdict(row) | {"consumer": None, "lag_seconds": None, "traceback": None}
    for name, value in ({"name": row.name} | facts | {"lag time": _time(row)}).items():
        if value is not None:
            click.echo(f"{name.replace('_', ' '):14} {_whole(value)}")
    for line in (row.traceback or "").splitlines():
        click.echo(f"  {printable(line)}")


def error_of(row: ConsumerRow) -> str | None:
    """Return the last error of a consumer in one line."""
    return f"at {row.error_position}: {one_line(f'{row.error}: {row.message}')}" if row.error else None


def _time(row: ConsumerRow) -> str | None:
    return None if row.lag_seconds is None else age(row.lag_seconds)


def _whole(value: object) -> str:
    return printable(value).replace("\n", "\n  ") if isinstance(value, str) else cell(value)
