"""`howdah failures`: failed jobs grouped by error."""

from __future__ import annotations

import click

from howdah.cli.common import DURATION, Target, as_json, run, targeted
from howdah.cli.output import dump, show
from howdah.jobs.rows import Failures

COLUMNS = {
    "jobs": lambda group: group.count,
    "kind": lambda group: group.kind,
    "queues": lambda group: group.queues,
    "first": lambda group: group.first_at,
    "last": lambda group: group.last_at,
    "example": lambda group: group.example,
    "error": lambda group: group.fingerprint,
}


@click.command()
@click.option("-q", "--queue", help="Only jobs of this queue.")
@click.option("-k", "--kind", help="Only jobs of this kind.")
@click.option("--within", type=DURATION, default="24h", show_default=True, help="Only failures of this period.")
@click.option(
    "--newest", type=click.IntRange(1, 100_000), default=10_000, show_default=True, help="Failures to examine."
)
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Groups to list.")
@as_json
@targeted
def failures(
    target: Target, queue: str | None, kind: str | None, within: float, newest: int, limit: int, as_json: bool
) -> None:
    """Group failed jobs by kind and error, the largest group first; numbers and quoted names are ignored.

    \b
    howdah failures --within 7d
    """

    async def look() -> Failures:
        async with target.admin() as admin:
            return await admin.failures(queue=queue, kind=kind, seconds=within, newest=newest, limit=limit)

    found = run(look())
    if as_json:
        dump(found)
        return
    show(found.groups, COLUMNS, empty="nothing failed")
    if found.more:
        click.echo(f"and {found.more} smaller groups: --limit", err=True)
    if found.cut:
        click.echo(f"looked at the newest {found.looked:,} failed jobs only: --newest", err=True)
