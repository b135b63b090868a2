"""`howdah enqueue`: one job from the command line."""

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
from howdah.cli.common import DURATION, Target, as_json, run, targeted
from howdah.cli.output import dump
from howdah.errors import ArgumentError
from howdah.jobs.new_job import Enqueued, NewJob
from howdah.postgres import migrate
from howdah.task import Task


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
        given["run_at"] = moment(run_at)
    about = read_json("--meta", meta) if meta is not None else None
    if about is not None and not isinstance(about, dict):
        raise ArgumentError(f"--meta must be a JSON object, got {meta}")
    text = sys.stdin.read() if arguments == "-" else arguments
    made = run(send(target, kind, read_json("ARGS-JSON", text), about, given))
    if as_json:
        dump({"id": made.id, "fresh": made.fresh})
    elif made.fresh:
        click.echo(f"enqueued job {made.id}")
    else:
        click.echo(f"job {made.id} already has this key; nothing enqueued")


async def send(
    target: Target, kind: str, arguments: Any, meta: dict[str, Any] | None, given: dict[str, Any]
) -> Enqueued:
    """Enqueue the job, validated by its task if an app is given."""
    if target.settings().app is not None:
        app = target.app()
        job = checked({**app.tasks, app.prune.kind: app.prune}, kind, arguments, meta, given)
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


def checked(
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


def moment(text: str) -> datetime:
    """Return a time with its zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise ArgumentError(f"--run-at must be a time with its zone, as 2030-01-31T12:00:00Z; got {text!r}")
    return at
