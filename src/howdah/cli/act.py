"""`howdah retry`, `cancel`, `delete`, `reprioritize` and `move`: act on jobs, by id or by filter."""

from __future__ import annotations

from collections.abc import Sequence

import click

from howdah.cli.bulk import Bulk
from howdah.cli.choice import MOST, Choice, choosing, confirm
from howdah.cli.common import Target, as_json, finish, run, targeted
from howdah.cli.failure import INCOMPLETE
from howdah.cli.output import dump, show
from howdah.jobs.acts import Verb
from howdah.jobs.rows import Said

MOST_LINES = 20


@click.command()
@choosing("failed", "cancelled")
@as_json
@targeted
def retry(target: Target, choice: Choice, yes: bool, as_json: bool) -> None:
    """Put failed or cancelled jobs back into their queue, with no attempt used.

    Exits 1 when some were left alone: not failed or cancelled, unknown, or their unique key is taken.

    \b
    howdah retry 5 7 10-20
    howdah retry --queue mail --finished-after 24h --yes
    """
    act(target, "retry", choice, "put back", yes=yes, as_json=as_json)


@click.command()
@choosing("queued", "running")
@as_json
@targeted
def cancel(target: Target, choice: Choice, yes: bool, as_json: bool) -> None:
    """Cancel jobs: waiting ones at once, running ones by their node's next heartbeat.

    Exits 1 when some were left alone: already over, or unknown.

    \b
    howdah cancel 5 7 10-20
    howdah cancel --kind send_newsletter --yes
    """
    act(target, "cancel", choice, "cancelled", yes=yes, as_json=as_json)


@click.command()
@choosing("failed", "cancelled", "done", "queued")
@as_json
@targeted
def delete(target: Target, choice: Choice, yes: bool, as_json: bool) -> None:
    """Remove jobs that wait or are over, with their attempts, logs and results. It cannot be undone.

    Exits 1 when some were left alone: running ones must be cancelled first.

    \b
    howdah delete 5 7 10-20
    howdah delete --state cancelled --kind send_newsletter --yes
    """
    act(target, "delete", choice, "deleted", yes=yes, as_json=as_json)


@click.command()
@click.option("--to", "priority", type=click.IntRange(-100, 100), required=True, help="The priority; larger is first.")
@choosing("queued")
@as_json
@targeted
def reprioritize(target: Target, choice: Choice, priority: int, yes: bool, as_json: bool) -> None:
    """Give waiting jobs another priority; retries keep it. They line up behind those that have it already.

    Exits 1 when some were left alone: running, over, unknown, or of this priority already.

    \b
    howdah reprioritize --to 10 5 7 10-20
    howdah reprioritize --to -10 --kind send_newsletter --yes
    """
    act(target, "reprioritize", choice, "reprioritized", to=priority, yes=yes, as_json=as_json)


@click.command()
@click.option("--to", "queue_to", required=True, metavar="QUEUE", help="The queue.")
@choosing("queued")
@as_json
@targeted
def move(target: Target, choice: Choice, queue_to: str, yes: bool, as_json: bool) -> None:
    """Let waiting jobs wait in another queue, at its end; retries stay there.

    Exits 1 when some were left alone: running, over, unknown, or in this queue already.

    \b
    howdah move --to bulk 5 7 10-20
    howdah move --to bulk --kind send_newsletter --yes
    """
    act(target, "move", choice, "moved", to=queue_to, yes=yes, as_json=as_json)


def act(
    target: Target,
    verb: Verb,
    choice: Choice,
    did: str,
    *,
    to: str | int | None = None,
    yes: bool,
    as_json: bool,
) -> None:
    """Ask if need be, act, and say what became of the jobs."""
    if choice.ids is None:
        whither = "" if to is None else f" to {to!r}"
        confirm(f"{verb} {choice}{whither}, up to {choice.limit}", yes)
    bulk = Bulk(verb, choice, to)
    try:
        run(bulk.run(target))
    except BaseException:
        if bulk.began:  # a commit whose answer was lost may have happened
            click.echo(f"{did} at least {counted(bulk.said)}", err=True)
        if as_json:
            dump(bulk.said)
        raise
    report(bulk, did, as_json=as_json, limited=choice.limited)


def counted(said: Sequence[Said]) -> str:
    """How many of how many.

    >>> counted([Said(id=1, said="deleted"), Said(id=2, said="running")])
    '1 of 2 jobs'
    """
    return f"{sum(each.did for each in said)} of {len(said)} jobs"


def report(bulk: Bulk, verb: str, *, as_json: bool, limited: bool) -> None:
    """Say what became of the jobs; exit 1 unless all that was asked for was done."""
    left = [each for each in bulk.said if not each.did]
    if as_json:
        dump(bulk.said)
    else:
        asked = sum(each.said == "asked" for each in bulk.said)
        click.echo(f"{verb} {counted(bulk.said)}" + (f", {asked} of them by their next heartbeat" if asked else ""))
        if left:
            show(
                left[:MOST_LINES],
                {"id": lambda each: each.id, "left alone": lambda each: REASONS.get(each.said, each.said)},
            )
        if len(left) > MOST_LINES:
            click.echo(f"and {len(left) - MOST_LINES} more")
    rest = ""
    if bulk.stopped:
        rest = "stopped before all were met; run it again for the rest"
    elif bulk.more:
        rest = "there may be more; run it again" + ("" if limited else f", or give a --limit of up to {MOST:,}")
    if rest:
        click.echo(f"{verb} {counted(bulk.said)}; {rest}" if as_json else rest, err=True)
    finish(INCOMPLETE if left or bulk.stopped or (bulk.more and not limited) else 0)


REASONS = {
    "live": "it is queued or running",
    "done": "it succeeded",
    "over": "it is already over",
    "unknown": "there is no such job",
    "running": "it is running; cancel it first",
    "fresh": "it has just ended; try again in a minute",
    "same": "it is so already",
    "changed": "it is no longer in that state or queue",
}
