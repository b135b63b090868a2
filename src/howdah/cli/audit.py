"""`howdah audit`: list audit entries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from howdah.audit.trail import LARGEST_PAGE, AuditEntry
from howdah.cli.common import Target, as_json, run, targeted
from howdah.cli.output import show
from howdah.cli.selection import MOMENT

FEW = 5


def change(entry: AuditEntry) -> str:
    """Return the change in a few words."""
    before, after = entry.before or {}, entry.after or {}
    names = dict.fromkeys([*before, *after])
    return ", ".join(f"{name} {_said(before.get(name))} → {_said(after.get(name))}" for name in names)


def named(entry: AuditEntry) -> str:
    """Return the first few objects of an entry."""
    some = ", ".join(entry.ids[:FEW])
    more = len(entry.ids) - FEW
    return f"{entry.thing} {some}" + (f" and {more} more" if more > 0 else "")


COLUMNS = {
    "id": lambda entry: entry.id,
    "at": lambda entry: entry.at,
    "who": lambda entry: entry.who,
    "via": lambda entry: entry.via,
    "did": lambda entry: entry.verb,
    "to": named,
    "count": lambda entry: entry.count,
    "change": change,
}


@click.command()
@click.option("--who", help="Only entries of this person or token.")
@click.option("--via", type=click.Choice(["cli", "dashboard", "api", "code"]), help="Only entries made this way.")
@click.option("--verb", help="Only this action: retry, pause, drain …")
@click.option("--thing", help="Only actions on: job, queue, schedule, node, consumer, row, token.")
@click.option("--id", "id_", metavar="ID", help="Only actions on this id; best with --thing.")
@click.option("--since", type=MOMENT, metavar="MOMENT", help="A time with its zone, or 24h for a day ago.")
@click.option("--until", type=MOMENT, metavar="MOMENT", help="The same.")
@click.option("--before", type=int, metavar="ID", help="Only entries older than this one: the next page.")
@click.option("-n", "--limit", type=click.IntRange(1, LARGEST_PAGE), default=20, show_default=True)
@as_json
@targeted
def audit(
    target: Target,
    who: str | None,
    via: str | None,
    verb: str | None,
    thing: str | None,
    id_: str | None,
    since: datetime | None,
    until: datetime | None,
    before: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """List who did what to jobs, queues, schedules, nodes, consumers, tables and tokens, newest first.

    \b
    howdah audit --since 24h
    howdah audit --thing job --id 42 --json
    """

    async def look() -> Sequence[AuditEntry]:
        async with target.admin() as admin:
            return await admin.audit(
                who=who,
                via=via,
                verb=verb,
                thing=thing,
                id=id_,
                since=since,
                until=until,
                before=before,
                limit=limit,
            )

    found = run(look())
    show(found, COLUMNS, as_json=as_json, empty="no entries")
    if len(found) == limit and not as_json:
        click.echo(f"older ones: --before {found[-1].id}", err=True)


def _said(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "-" if value is None else msgspec.json.encode(value).decode()
