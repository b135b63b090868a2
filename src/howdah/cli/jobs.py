"""`howdah jobs`, `job`, `failures` and `enqueue`: list, show and enqueue jobs."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import datetime
from typing import Any

import asyncpg
import click
import msgspec

from howdah.app import Howdah
from howdah.arguments import encode
from howdah.cli.output import cell, dump, printable, show
from howdah.cli.parameters import DURATION, as_json
from howdah.cli.selection import filtering
from howdah.cli.target import Target, run, targeted
from howdah.errors import ArgumentError, HowdahError
from howdah.job import PLATFORM_PREFIX, Enqueued, NewJob, State
from howdah.jobs.rows import AttemptRow, Failures, JobPage, JobRow, shown, shown_failures
from howdah.jobs.search import Filter
from howdah.postgres import migrate
from howdah.task import Task

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

    async def read() -> JobPage:
        async with target.admin() as admin:
            return await admin.list(Filter(state=state, **fields), before=before, limit=limit)

    redact, page = target.redact(), run(read())
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

    async def read() -> JobRow | None:
        async with target.admin() as admin:
            return await admin.get(id)

    found = run(read())
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
            click.echo(f"{name.replace('_', ' '):13} {_full(value)}")
    for attempt in attempts:
        click.echo()
        _describe_attempt(attempt)


def _describe_attempt(attempt: AttemptRow) -> None:
    where = f" on {attempt.node_name}" if attempt.node_name else ""
    click.echo(f"attempt {attempt.attempt} ended at {cell(attempt.ended_at)}{where}: {attempt.outcome}")
    click.echo(f"  {_full(': '.join(filter(None, (attempt.error, attempt.message))))}")
    for line in (attempt.traceback or "").splitlines():
        click.echo(f"    {printable(line)}")


def _full(value: Any) -> str:
    return printable(value).replace("\n", "\n  ") if isinstance(value, str) else cell(value)


FAILURE_COLUMNS = {
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

    async def read() -> Failures:
        async with target.admin() as admin:
            return await admin.failures(queue=queue, kind=kind, seconds=within, newest=newest, limit=limit)

    found = shown_failures(run(read()), target.redact())
    if as_json:
        dump(found)
        return
    show(found.groups, FAILURE_COLUMNS, empty="nothing failed")
    if found.more:
        click.echo(f"and {found.more} smaller groups: --limit", err=True)
    if found.cut:
        click.echo(f"looked at the newest {found.looked:,} failed jobs only: --newest", err=True)


@click.command()
@click.argument("kind")
@click.argument("arguments", metavar="[ARGS-JSON|-]", default="{}")
@click.option("-q", "--queue", help="The queue.  [default: the task's, or default]")
@click.option("-p", "--priority", type=int, help="From -100 to 100, larger first.")
@click.option("--run-at", metavar="TIME", help="Not before this time, in ISO 8601 with its zone.")
@click.option("--delay", type=DURATION, help="Not before this has passed: 90s, 15m, 24h, 14d.")
@click.option("--max-attempts", type=int, help="Attempts before the job fails.")
@click.option("--timeout", type=DURATION, help="Maximum duration of an attempt.")
@click.option("--key", help="Unique key: nothing is enqueued while a live job has it.")
@click.option("--meta", metavar="JSON", help="An object to keep with the job.")
@as_json
@targeted
def enqueue(
    target: Target,
    kind: str,
    arguments: str,
    run_at: str | None,
    meta: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Enqueue one job of KIND with arguments by name, a JSON object, or by position, a JSON array. `-` reads them from
    stdin, where other users of the machine cannot see them.

    With an app (-a, HOWDAH_APP or howdah.toml) the arguments are checked against the task; without, the job is
    enqueued as it is.

    \b
    howdah enqueue send_welcome '{"user_id": 7}' --queue mail --delay 15m
    howdah enqueue send_welcome '[7]' -a shop.jobs:app
    """
    given = {name: value for name, value in options.items() if value is not None}
    if run_at is not None:
        given["run_at"] = read_time(run_at)
    about = read_json("--meta", meta) if meta is not None else None
    if about is not None and not isinstance(about, dict):
        raise ArgumentError(f"--meta must be a JSON object, got {meta}")
    text = sys.stdin.read() if arguments == "-" else arguments
    made = run(create_job(target, kind, read_json("ARGS-JSON", text), about, given))
    if as_json:
        dump({"id": made.id, "fresh": made.fresh})
    elif made.fresh:
        click.echo(f"enqueued job {made.id}")
    else:
        click.echo(f"job {made.id} already has this key; nothing enqueued")


async def create_job(
    target: Target, kind: str, arguments: Any, meta: dict[str, Any] | None, given: dict[str, Any]
) -> Enqueued:
    """Enqueue the job, validated by its task if an app is given."""
    if kind.startswith(PLATFORM_PREFIX):
        raise ArgumentError(
            f"kinds that start with {PLATFORM_PREFIX!r} are Howdah's own and cannot be enqueued; `howdah prune` prunes"
        )
    if target.settings().app is not None:
        app = target.app()
        job = validated(app.tasks, kind, arguments, meta, given)
    else:
        if not isinstance(arguments, dict):
            raise ArgumentError('arguments by position need the app (-a): give an object, {"name": value}')
        database = target.database()
        app = Howdah(database.dsn, schema=database.schema)
        job = NewJob(
            kind=kind,
            payload=encode(arguments, what="ARGS-JSON"),
            meta=encode(meta, what="--meta") if meta else None,
            **given,
        )
        job.check()
    with suppress(asyncpg.InsufficientPrivilegeError):  # a role that may only enqueue cannot read the version
        await migrate.check(app.database)
    try:
        return await app.enqueue(job)
    finally:
        await app.close()


def validated(
    tasks: dict[str, Task[..., Any]], kind: str, arguments: Any, meta: dict[str, Any] | None, given: dict[str, Any]
) -> NewJob:
    """Return the job as its task builds it."""
    if kind not in tasks:
        known = ", ".join(sorted(tasks)[:20]) or "none"
        raise ArgumentError(f"the app has no task {kind!r}; it has {known}")
    task = tasks[kind].using(meta=meta, **given)
    if isinstance(arguments, dict):
        return task.job(**arguments)
    if isinstance(arguments, list):
        return task.job(*arguments)
    raise ArgumentError(f"arguments must be a JSON object or array, got {arguments!r}")


def read_json(what: str, text: str) -> Any:
    """Return the decoded arguments."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ArgumentError(f"{what} is not JSON: {error}; got {text[:80]}") from None


def read_time(text: str) -> datetime:
    """Return a time with its zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise ArgumentError(f"--run-at must be a time with its zone, as 2030-01-31T12:00:00Z; got {text!r}")
    return at
