"""`howdah consumers parked`: list, retry and drop parked events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from howdah.cli.common import POSITION, Target, as_json, finish, read_ids, run, targeted
from howdah.cli.errors import INCOMPLETE, one_line
from howdah.cli.output import dump, show
from howdah.cli.selection import confirm
from howdah.events.admin import LARGEST_PAGE
from howdah.events.rows import ParkedRow

COLUMNS: dict[str, Callable[[ParkedRow], object]] = {
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
def list_(target: Target, name: str | None, after: int, limit: int, as_json: bool) -> None:
    """List the parked events of one consumer, or of all, oldest first. `--json` has data and traceback.

    \b
    howdah consumers parked list order-totals
    """

    async def look() -> Sequence[ParkedRow]:
        async with target.log() as log:
            if name is not None:
                await log.admin.stands(name)  # says when there is none of this name
            return await log.admin.parked(name, after=after, limit=limit)

    found = run(look())
    show(found, COLUMNS, as_json=as_json, empty="no parked events")
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
    wanted = chosen(positions, everything)

    async def act() -> Sequence[int]:
        async with target.log() as log:
            return await log.admin.retry_parked(name, wanted)

    tell(run(act()), wanted, "to be tried again", as_json=as_json)


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
    wanted = chosen(positions, everything)
    if wanted is None:
        confirm(f"drop all that consumer {name!r} parked", yes)

    async def act() -> Sequence[int]:
        async with target.log() as log:
            return await log.admin.drop_parked(name, wanted)

    tell(run(act()), wanted, "dropped", as_json=as_json)


def chosen(positions: Sequence[str], everything: bool) -> list[int] | None:
    """Return the given positions; ``None`` for all."""
    if bool(positions) == everything:
        raise click.UsageError("say which events: positions such as 5 7 10-20, or --all")
    return None if everything else read_ids(positions, "position")


def tell(did: Sequence[int], wanted: list[int] | None, what: str, *, as_json: bool) -> None:
    """Print the results; exit 1 unless every event was processed."""
    left = sorted(set(wanted or ()) - set(did))
    if as_json:
        dump({"did": did, "not_parked": left})
    else:
        click.echo(f"{what}: {len(did)} of {len(did) + len(left)} events")
        if left:
            click.echo(f"not parked: {', '.join(map(str, left[:20]))}{', …' if len(left) > 20 else ''}")
    finish(INCOMPLETE if left else 0)
