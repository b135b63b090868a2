"""`howdah consumers`: list and manage the consumers of the event log, and their parked events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TextIO

import asyncpg
import click
import msgspec

from howdah.cli.consumer_position import replay, reset, skip, wait, with_admin
from howdah.cli.output import INCOMPLETE, age, cell, dump, finish, one_line, printable, show
from howdah.cli.parameters import POSITION, as_json, read_ids
from howdah.cli.selection import confirm
from howdah.cli.target import Target, targeted, user
from howdah.errors import HowdahError
from howdah.events.admin import LARGEST_PAGE, ConsumerRow, LogAdmin
from howdah.events.parked import ParkedRow

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
PARKED_COLUMNS: dict[str, Callable[[ParkedRow], object]] = {
    "position": lambda row: row.position,
    "consumer": lambda row: row.consumer,
    "stream": lambda row: row.stream,
    "version": lambda row: row.version,
    "type": lambda row: row.type,
    "parked at": lambda row: row.parked_at,
    "failures": lambda row: row.failures,
    "retry": lambda row: "wanted" if row.wanted_at else None,
    "error": lambda row: one_line(f"{row.error}: {row.message}"),
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
    found = with_admin(target, LogAdmin.consumers)
    if as_json:
        dump([{"name": row.name, **msgspec.to_builtins(row)} for row in found])
        return
    show(found, COLUMNS, empty="no consumers yet; declare one with app.consumer(…), and run a worker")


@consumers.command("show")
@click.argument("name")
@as_json
@targeted
def show_(target: Target, name: str, as_json: bool) -> None:
    """Show one consumer in detail, with the traceback of its last error.

    \b
    howdah consumers show order-totals
    """
    found = with_admin(target, lambda admin: admin.consumers(name))
    if as_json:
        dump(found)
        return
    for number, row in enumerate(found):
        if number:
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
    with_admin(target, lambda admin: admin.pause(name, by or user()))
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
    resumed = with_admin(target, lambda admin: admin.resume(name))
    click.echo(f"consumer {name!r} {'resumed' if resumed else 'was neither paused nor halted'}")
    finish(0 if resumed else INCOMPLETE)


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
    with_admin(target, lambda admin: admin.forget(name))
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
        position = with_admin(target, lambda admin: admin.switch(old, new, statement))
    except asyncpg.PostgresError as error:
        raise HowdahError(f"the statements failed, so nothing was changed: {error}") from error
    click.echo(f"switched: consumer {new!r} is at position {position}, {old!r} is paused")


@click.group()
def parked() -> None:
    """List, retry and drop events on which a consumer with on_failure="park" failed.

    \b
    howdah consumers parked list
    howdah consumers parked retry order-totals 1042
    """


@parked.command("list")
@click.argument("name", required=False)
@click.option("--after", type=POSITION, default=0, metavar="POSITION", help="Only events after it: the next page.")
@click.option("-n", "--limit", type=click.IntRange(1, LARGEST_PAGE), default=50, show_default=True)
@as_json
@targeted
def list_parked(target: Target, name: str | None, after: int, limit: int, as_json: bool) -> None:
    """List the parked events of one consumer, or of all, oldest first. `--json` has data and traceback.

    \b
    howdah consumers parked list order-totals
    """

    async def read(admin: LogAdmin) -> Sequence[ParkedRow]:
        if name is not None:
            await admin.progress(name)  # raises if there is no consumer of this name
        return await admin.parked(name, after=after, limit=limit)

    found = with_admin(target, read)
    show(found, PARKED_COLUMNS, as_json=as_json, empty="no parked events")
    if len(found) == limit and not as_json:
        click.echo(f"later ones: --after {found[-1].position}", err=True)


@parked.command()
@click.argument("name")
@click.argument("positions", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All parked events of the consumer.")
@as_json
@targeted
def retry(target: Target, name: str, positions: Sequence[str], everything: bool, as_json: bool) -> None:
    """Retry parked events on the node that owns the consumer; an event that fails again stays parked.

    Their streams may have gone on since. Exits 1 when some are not parked.

    \b
    howdah consumers parked retry order-totals 1042 1050-1060
    """
    wanted = read_positions(positions, everything)
    report(
        with_admin(target, lambda admin: admin.retry_parked(name, wanted)), wanted, "to be tried again", as_json=as_json
    )


@parked.command()
@click.argument("name")
@click.argument("positions", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All parked events of the consumer.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask, with --all.")
@as_json
@targeted
def drop(target: Target, name: str, positions: Sequence[str], everything: bool, yes: bool, as_json: bool) -> None:
    """Drop parked events: the consumer never processes them. They stay in the log.

    Exits 1 when some are not parked.

    \b
    howdah consumers parked drop order-totals 1042
    """
    wanted = read_positions(positions, everything)
    if wanted is None:
        confirm(f"drop all that consumer {name!r} parked", yes)
    report(with_admin(target, lambda admin: admin.drop_parked(name, wanted)), wanted, "dropped", as_json=as_json)


for each in (reset, replay, skip, wait, parked):
    consumers.add_command(each)


def read_positions(positions: Sequence[str], everything: bool) -> list[int] | None:
    """Return the given positions; ``None`` for all."""
    if bool(positions) == everything:
        raise click.UsageError("say which events: positions such as 5 7 10-20, or --all")
    return None if everything else read_ids(positions, "position")


def report(did: Sequence[int], wanted: list[int] | None, what: str, *, as_json: bool) -> None:
    """Print the results; exit 1 unless every event was processed."""
    left = sorted(set(wanted or ()) - set(did))
    if as_json:
        dump({"did": did, "not_parked": left})
    else:
        click.echo(f"{what}: {len(did)} of {len(did) + len(left)} events")
        if left:
            click.echo(f"not parked: {', '.join(map(str, left[:20]))}{', …' if len(left) > 20 else ''}")
    finish(INCOMPLETE if left else 0)


def describe(row: ConsumerRow) -> None:
    """Print one consumer, a line per field."""
    facts = msgspec.structs.asdict(row) | {"consumer": None, "lag_seconds": None, "traceback": None}
    for name, value in ({"name": row.name} | facts | {"lag time": _time(row)}).items():
        if value is not None:
            click.echo(f"{name.replace('_', ' '):14} {_full(value)}")
    for line in (row.traceback or "").splitlines():
        click.echo(f"  {printable(line)}")


def error_of(row: ConsumerRow) -> str | None:
    """Return the last error of a consumer in one line."""
    return f"at {row.error_position}: {one_line(f'{row.error}: {row.message}')}" if row.error else None


def _time(row: ConsumerRow) -> str | None:
    return None if row.lag_seconds is None else age(row.lag_seconds)


def _full(value: object) -> str:
    return printable(value).replace("\n", "\n  ") if isinstance(value, str) else cell(value)
