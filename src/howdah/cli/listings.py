"""Lists of queues, nodes, schedules and audit entries, and the commands that pause, resume and drain."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from howdah.audit import LARGEST_PAGE, AuditEntry
from howdah.cli.output import INCOMPLETE, age, finish, printable, show
from howdah.cli.parameters import MOMENT, as_json
from howdah.cli.target import Target, run, targeted, user
from howdah.jobs.rows import NodeRow, QueueRow, ScheduleRow

QUEUE_COLUMNS = {
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

    async def read() -> Sequence[QueueRow]:
        async with target.admin() as admin:
            return await admin.queues()

    show(run(read()), QUEUE_COLUMNS, as_json=as_json, empty="no queues yet")


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
            resumed = [await admin.resume(queue) for queue in queues]
        for queue, was in zip(queues, resumed, strict=True):
            click.echo(f"queue {queue!r} {'is resumed' if was else 'was not paused'}")
        return all(resumed)

    finish(0 if run(act()) else INCOMPLETE)


NODE_COLUMNS = {
    "node": lambda node: node.id,
    "name": lambda node: node.name,
    "state": lambda node: node.state,
    "running": lambda node: f"{node.running}/{node.slots}",
    "leases": lambda node: node.leases,
    "queues": lambda node: "all" if node.queues is None else node.queues,
    "kinds": lambda node: len(node.kinds or ()),
    "last beat": lambda node: age(node.beat_age),
    "started at": lambda node: node.started_at,
    "version": lambda node: node.version,
    "wake-ups": lambda node: "no, polls" if node.deaf else "yes",
}


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also stopped nodes.")
@as_json
@targeted
def nodes(target: Target, everything: bool, as_json: bool) -> None:
    """List the nodes, newest first.

    \b
    howdah nodes --all
    """

    async def read() -> Sequence[NodeRow]:
        async with target.admin() as admin:
            return await admin.nodes(all=everything)

    show(run(read()), NODE_COLUMNS, as_json=as_json, empty="no nodes; start one with `howdah worker`")


@click.command()
@click.argument("nodes", nargs=-1, required=True, type=click.IntRange(1, 2**31 - 1))
@targeted
def drain(target: Target, nodes: Sequence[int]) -> None:
    """Drain nodes: they claim no more, finish their jobs and exit. They read the request at their next heartbeat.

    It cannot be undone. Whatever keeps the process running may start it anew, as another node.

    \b
    howdah drain 7
    """

    async def act() -> None:
        async with target.admin() as admin:
            for node in nodes:
                click.echo(f"node {node} ({printable(await admin.drain(node))}) drains")

    run(act())


SCHEDULE_COLUMNS = {
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

    async def read() -> Sequence[ScheduleRow]:
        async with target.admin() as admin:
            for name, paused in ((pause, True), (resume, False)):
                if name is not None:
                    await admin.pause_schedule(name, paused)
            return await admin.schedules()

    show(run(read()), SCHEDULE_COLUMNS, as_json=as_json, empty="no schedules; declare one with app.schedule(…)")


MAX_OBJECTS = 5


def audit_change(entry: AuditEntry) -> str:
    """Describe the change of an audit entry."""
    before, after = entry.before or {}, entry.after or {}
    names = dict.fromkeys([*before, *after])
    return ", ".join(f"{name} {_written(before.get(name))} → {_written(after.get(name))}" for name in names)


def audit_objects(entry: AuditEntry) -> str:
    """Return the first objects of an audit entry."""
    some = ", ".join(entry.ids[:MAX_OBJECTS])
    more = len(entry.ids) - MAX_OBJECTS
    return f"{entry.thing} {some}" + (f" and {more} more" if more > 0 else "")


AUDIT_COLUMNS = {
    "id": lambda entry: entry.id,
    "at": lambda entry: entry.at,
    "who": lambda entry: entry.who,
    "via": lambda entry: entry.via,
    "did": lambda entry: entry.verb,
    "to": audit_objects,
    "count": lambda entry: entry.count,
    "change": audit_change,
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

    async def read() -> Sequence[AuditEntry]:
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

    found = run(read())
    show(found, AUDIT_COLUMNS, as_json=as_json, empty="no entries")
    if len(found) == limit and not as_json:
        click.echo(f"older ones: --before {found[-1].id}", err=True)


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "-" if value is None else msgspec.json.encode(value).decode()
