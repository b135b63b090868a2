"""`howdah queues`, `pause` and `resume`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from howdah.cli.common import Target, as_json, finish, run, targeted, user
from howdah.cli.errors import INCOMPLETE
from howdah.cli.output import age, show
from howdah.jobs.rows import QueueRow

COLUMNS = {
    "queue": lambda queue: queue.name,
    "queued": lambda queue: queue.queued,
    "scheduled": lambda queue: queue.scheduled,
    "running": lambda queue: queue.running,
    "oldest": lambda queue: age(queue.oldest_age),
    "done 1h/24h": lambda queue: f"{queue.done_hour}/{queue.done_day}",
    "failed 1h/24h": lambda queue: f"{queue.failed_hour}/{queue.failed_day}",
    "paused": lambda queue: f"by {queue.paused_by}" if queue.paused_by else queue.paused or None,
}


@click.command()
@as_json
@targeted
def queues(target: Target, as_json: bool) -> None:
    """List the queues: queued and running jobs, age of the oldest, recently finished jobs.

    \b
    howdah queues
    """

    async def look() -> Sequence[QueueRow]:
        async with target.admin() as admin:
            return await admin.queues()

    show(run(look()), COLUMNS, as_json=as_json, empty="no queues yet")


@click.command()
@click.argument("queues", nargs=-1, required=True)
@click.option("--by", help="Name to display as the one who paused it.  [default: your user name]")
@targeted
def pause(target: Target, queues: Sequence[str], by: str | None) -> None:
    """Stop claiming from queues on every node; running jobs continue.

    \b
    howdah pause mail
    """

    async def act() -> None:
        async with target.admin() as admin:
            known = {row.name for row in await admin.queues()}
            for queue in queues:
                await admin.pause(queue, by or user())
                click.echo(f"queue {queue!r} is paused")
                if queue not in known:
                    click.echo(f"no job was ever in queue {queue!r}; is it spelled right? `howdah queues`", err=True)

    run(act())


@click.command()
@click.argument("queues", nargs=-1, required=True)
@targeted
def resume(target: Target, queues: Sequence[str]) -> None:
    """Resume paused queues; exits 1 if one was not paused.

    \b
    howdah resume mail
    """

    async def act() -> bool:
        async with target.admin() as admin:
            were = [await admin.resume(queue) for queue in queues]
        for queue, was in zip(queues, were, strict=True):
            click.echo(f"queue {queue!r} {'is resumed' if was else 'was not paused'}")
        return all(were)

    finish(0 if run(act()) else INCOMPLETE)
