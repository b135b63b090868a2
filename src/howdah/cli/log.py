"""`howdah log`: show, read and append to the event log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

from howdah.cli.jobs import read_json
from howdah.cli.output import age, cell, dump, one_line, show
from howdah.cli.parameters import POSITION, as_json
from howdah.cli.target import Target, run, targeted
from howdah.errors import ArgumentError
from howdah.events.admin import Holder, LogStatus
from howdah.events.event import Appended, Event, NewEvent
from howdah.events.read import LARGEST_PAGE

HOLDERS: dict[str, Callable[[Holder], object]] = {
    "above": lambda holder: holder.above,
    "pid": lambda holder: holder.pid,
    "application": lambda holder: holder.application,
    "role": lambda holder: holder.role,
    "age": lambda holder: age(holder.age),
    "state": lambda holder: holder.state,
    "prepared": lambda holder: holder.prepared,
    "query": lambda holder: holder.query,
}
EVENTS: dict[str, Callable[[Event], object]] = {
    "position": lambda event: event.position,
    "at": lambda event: event.at,
    "stream": lambda event: event.stream,
    "version": lambda event: event.version,
    "type": lambda event: event.type,
    "data": lambda event: event.data_json.decode(),
}


@click.group()
def log() -> None:
    """Show, read and append to the event log.

    \b
    howdah log status
    howdah log read --stream Order-17
    """


@log.command()
@as_json
@targeted
def status(target: Target, as_json: bool) -> None:
    """Show the head of the log, the safe frontier, and the open transactions that hold the frontier back.

    An open append may still commit positions above the one shown, so readers stop before the lowest of these.

    \b
    howdah log status
    """

    async def read() -> LogStatus:
        async with target.log() as log:
            return await log.admin.status()

    found = run(read())
    holders = [msgspec.structs.replace(each, query=each.query and one_line(each.query)) for each in found.holders]
    if as_json:
        dump(msgspec.structs.replace(found, holders=holders))
        return
    behind = found.head - found.frontier
    leader = f"{found.leader_name} (node {found.leader}) since {cell(found.since)}" if found.leader else "none"
    click.echo(f"head      {found.head}")
    click.echo(f"frontier  {found.frontier}" + (f", {behind} behind the head" if behind else ""))
    click.echo(f"gate      {'exclusive: one append at a time' if found.exclusive else 'shared'}")
    click.echo(f"leader    {leader}")
    if holders:
        click.echo("open appends, the one that holds the frontier back first:")
    show(holders, HOLDERS, empty="no append is open")


@log.command()
@click.option("--after", type=POSITION, default=0, metavar="N", help="Only events after this position.")
@click.option("--before", type=POSITION, metavar="N", help="Only events before this position.")
@click.option("--stream", metavar="TYPE-ID", help="Only this stream; --after and --before are then versions of it.")
@click.option("--only", multiple=True, metavar="TYPE", help="Only streams of this type; may be given again.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only events of this type; may be given again.")
@click.option("--backwards", is_flag=True, help="Newest first.")
@click.option("-n", "--limit", type=click.IntRange(1, LARGEST_PAGE), default=20, show_default=True)
@as_json
@targeted
def read(
    target: Target,
    after: int,
    before: int | None,
    stream: str | None,
    only: Sequence[str],
    types: Sequence[str],
    backwards: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Print events by position, up to the safe frontier, or of one stream by version. Data is printed as stored.

    \b
    howdah log read --only Order --type OrderPlaced --backwards
    howdah log read --stream Order-17 --json
    """
    if stream is not None and only:
        raise click.UsageError("give --stream or --only, not both: a stream has one type")

    async def read() -> list[Event]:
        async with target.log() as log:
            bounds: dict[str, Any] = {"after": after, "before": before, "backwards": backwards, "limit": limit}
            if stream is not None:
                return await log.stream(stream, types=types or None, **bounds)
            return await log.read(only=only or None, types=types or None, **bounds)

    found = run(read())
    if as_json:
        dump([full(event) for event in found])
        return
    show(found, EVENTS, empty="no such events")
    if len(found) == limit:
        last = found[-1].position if stream is None else found[-1].version
        click.echo(f"more: --{'before' if backwards else 'after'} {last}", err=True)


@log.command()
@click.argument("stream")
@click.argument("type")
@click.argument("data", metavar="[DATA-JSON|-]", default="{}")
@click.option("--expect", type=POSITION, metavar="N", help="Expected version of the stream; 0 for a new one.")
@click.option("--version", type=int, metavar="N", help="Schema version of the event.  [default: the newest]")
@click.option("--meta", metavar="JSON", help="An object to keep with the event.")
@as_json
@targeted
def append(
    target: Target,
    stream: str,
    type: str,
    data: str,
    expect: int | None,
    version: int | None,
    meta: str | None,
    as_json: bool,
) -> None:
    """Append one event of TYPE to STREAM (named Type-id). `-` reads the data from stdin.

    With an app (-a, HOWDAH_APP or howdah.toml) the data is checked against the class of its type; without, the event
    is appended as it is. Exits 1 when the stream is not at the version expected.

    \b
    howdah log append Order-17 OrderPlaced '{"total": 5}' --expect 0
    """
    value = read_json("DATA-JSON", sys.stdin.read() if data == "-" else data)
    about = read_json("--meta", meta) if meta is not None else None
    if about is not None and not isinstance(about, dict):
        raise ArgumentError(f"--meta must be a JSON object, got {meta}")
    app = target.app() if target.settings().app is not None else None
    if app is not None:
        app.types.decode(type, version or app.types.newest(type), msgspec.json.encode(value))

    async def act() -> Appended:
        async with target.log(app) as log:
            return await log.append(stream, NewEvent(type=type, data=value, version=version, meta=about), expect=expect)

    made = run(act())
    if as_json:
        dump({"stream": stream, "version": made.version, "position": made.position})
    else:
        click.echo(f"appended event {made.position}; stream {stream} is at version {made.version}")


@log.command()
@click.argument("switch", metavar="on|off", type=click.Choice(["on", "off"]))
@targeted
def exclusive(target: Target, switch: str) -> None:
    """Choose the gate of appends: exclusive (positions commit in order) or shared (the default, faster).

    It has its price: many small appends at once run at about a third of their rate, and a transaction that appends
    keeps all others that do waiting until it ends. Reading is safe either way.

    \b
    howdah log exclusive off
    """

    async def act() -> None:
        async with target.log() as log:
            await log.admin.set_exclusive(switch == "on")

    run(act())
    if switch == "on":
        click.echo("appends go one at a time; many small ones at once run at about a third of their rate")
    else:
        click.echo("appends go side by side")


def full(event: Event) -> dict[str, Any]:
    """Return an event as JSON, its data as stored."""
    return {
        "position": event.position,
        "at": event.at,
        "stream": event.stream,
        "version": event.version,
        "type": event.type,
        "schema_version": event.schema_version,
        "data": msgspec.Raw(event.data_json),
        "meta": msgspec.Raw(event.meta_json) if event.meta_json else None,
        "correlation": event.correlation,
        "causation": event.causation,
        "trace": event.trace,
    }
