"""`howdah jobs` and `howdah job`: look at jobs."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from howdah.cli.common import Target, as_json, run, targeted
from howdah.cli.output import cell, dump, printable, show
from howdah.cli.selection import filtering
from howdah.errors import HowdahError
from howdah.job import State
from howdah.jobs.filter import Filter
from howdah.jobs.rows import AttemptRow, JobPage, JobRow, shown

COLUMNS = {
    "id": lambda job: job.id,
    "state": lambda job: job.state,
    "kind": lambda job: job.kind,
    "queue": lambda job: job.queue,
    "attempt": lambda job: f"{job.attempt}/{job.max_attempts}",
    "at": lambda job: job.finished_at or job.started_at or job.run_at,
    "key": lambda job: job.key,
    "error": lambda job: job.error,
}


@click.command()
@click.option("-s", "--state", type=click.Choice([str(state) for state in State]), help="Only jobs in this state.")
@filtering
@click.option("--before", type=int, metavar="ID", help="Only jobs older than this one: the next page.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Jobs to list.")
@as_json
@targeted
def jobs(
    target: Target,
    state: str | None,
    before: int | None,
    limit: int,
    as_json: bool,
    **fields: Any,
) -> None:
    """List jobs, newest first; `at` is when a job finished, started or is due.

    \b
    howdah jobs --state failed --queue mail
    howdah jobs --text user17@example.com --enqueued-after 7d
    howdah jobs --json --limit 1000 | jq .
    """

    async def look() -> JobPage:
        async with target.admin() as admin:
            return await admin.list(Filter(state=state, **fields), before=before, limit=limit)

    redact, page = target.redact(), run(look())
    found = [shown(job, redact) for job in page]
    show(found, COLUMNS, as_json=as_json, empty="no such jobs")
    if page.cut:
        click.echo(f"looked at the newest {page.looked:,} jobs only; go on with --before {page.next}", err=True)
    elif page.next is not None and not as_json:
        click.echo(f"older ones: --before {page.next}", err=True)


@click.command()
@click.argument("id", type=int)
@as_json
@targeted
def job(target: Target, id: int, as_json: bool) -> None:
    """Show everything about one job: its state, arguments, result and the history of its attempts.

    \b
    howdah job 42
    """

    async def look() -> JobRow | None:
        async with target.admin() as admin:
            return await admin.get(id)

    found = run(look())
    if found is None:
        raise HowdahError(f"there is no job {id}; it was never enqueued, or pruned since")
    seen = shown(found, target.redact())
    if as_json:
        dump(seen)
    else:
        describe(seen)


def describe(job: JobRow) -> None:
    """Print everything about a job, a line each."""
    facts = msgspec.structs.asdict(job)
    attempts = facts.pop("attempts")
    for name in ("args", "meta", "result"):
        facts[name] = None if facts[name] is None else msgspec.json.encode(facts[name]).decode()
    for name, value in facts.items():
        if value is not None and value is not False:
            click.echo(f"{name.replace('_', ' '):13} {_whole(value)}")
    for attempt in attempts:
        click.echo()
        _describe_attempt(attempt)


def _describe_attempt(attempt: AttemptRow) -> None:
    where = f" on {attempt.node_name}" if attempt.node_name else ""
    click.echo(f"attempt {attempt.attempt} ended at {cell(attempt.ended_at)}{where}: {attempt.outcome}")
    click.echo(f"  {_whole(': '.join(filter(None, (attempt.error, attempt.message))))}")
    for line in (attempt.traceback or "").splitlines():
        click.echo(f"    {printable(line)}")


def _whole(value: Any) -> str:
    return printable(value).replace("\n", "\n  ") if isinstance(value, str) else cell(value)
