"""`howdah schedules`: list, pause and resume schedules."""

from __future__ import annotations

from collections.abc import Sequence

import click

from howdah.cli.common import Target, as_json, run, targeted
from howdah.cli.output import show
from howdah.jobs.rows import ScheduleRow

COLUMNS = {
    "name": lambda row: row.name,
    "kind": lambda row: row.kind,
    "cron": lambda row: row.cron,
    "zone": lambda row: row.zone,
    "next": lambda row: "paused" if row.paused else row.next_at,
    "last": lambda row: row.last_at,
    "last job": lambda row: row.last_job,
    "its state": lambda row: row.last_state,
}


@click.command()
@click.option("--pause", metavar="NAME", help="Pause this schedule.")
@click.option("--resume", metavar="NAME", help="Resume this schedule from now.")
@as_json
@targeted
def schedules(target: Target, pause: str | None, resume: str | None, as_json: bool) -> None:
    """List the schedules, the next due first.

    \b
    howdah schedules --pause nightly-report
    """

    async def look() -> Sequence[ScheduleRow]:
        async with target.admin() as admin:
            for name, paused in ((pause, True), (resume, False)):
                if name is not None:
                    await admin.pause_schedule(name, paused)
            return await admin.schedules()

    show(run(look()), COLUMNS, as_json=as_json, empty="no schedules; declare one with app.schedule(…)")
