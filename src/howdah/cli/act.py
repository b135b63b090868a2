"""`howdah retry` and `howdah cancel`: act on jobs, by id or by filter."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from howdah.cli.common import Target, as_json, finish, read_ids, run, targeted
from howdah.cli.failure import INCOMPLETE
from howdah.cli.output import dump, show
from howdah.jobs.rows import Said

MOST_LINES = 20


@click.command()
@click.argument("ids", nargs=-1)
@click.option("-q", "--queue", help="Every failed job of this queue.")
@click.option("-k", "--kind", help="Every failed job of this kind.")
@click.option("--all", "everything", is_flag=True, help="Every failed job.")
@click.option("-s", "--state", type=click.Choice(["failed", "cancelled"]), default="failed", help="With a filter.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=1000, show_default=True, help="With a filter.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_json
@targeted
def retry(
    target: Target,
    ids: Sequence[str],
    queue: str | None,
    kind: str | None,
    everything: bool,
    state: str,
    limit: int,
    yes: bool,
    as_json: bool,
) -> None:
    """Put failed or cancelled jobs back into their queue, with no attempt used.

    Exits 1 when some were left alone: not failed or cancelled, unknown, or their unique key is taken.

    \b
    howdah retry 5 7 10-20
    howdah retry --queue mail --yes
    """
    by_id = chosen(ids, queue, kind, everything)
    if by_id is None:
        confirm(f"retry {scope(state, queue, kind)}, up to {limit}", yes)

    async def act() -> Sequence[Said]:
        async with target.admin() as admin:
            if by_id is not None:
                return await admin.retry(by_id)
            return await admin.retry_where(queue=queue, kind=kind, state=state, limit=limit)

    report(run(act()), "put back", as_json=as_json, limit=None if by_id is not None else limit)


@click.command()
@click.argument("ids", nargs=-1)
@click.option("-q", "--queue", help="Every waiting job of this queue.")
@click.option("-k", "--kind", help="Every waiting job of this kind.")
@click.option("--all", "everything", is_flag=True, help="Every waiting job.")
@click.option("-s", "--state", type=click.Choice(["queued", "running"]), default="queued", help="With a filter.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), default=1000, show_default=True, help="With a filter.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@as_json
@targeted
def cancel(
    target: Target,
    ids: Sequence[str],
    queue: str | None,
    kind: str | None,
    everything: bool,
    state: str,
    limit: int,
    yes: bool,
    as_json: bool,
) -> None:
    """Cancel jobs: waiting ones at once, running ones by their node's next heartbeat.

    Exits 1 when some were left alone: already over, or unknown.

    \b
    howdah cancel 5 7 10-20
    howdah cancel --kind send_newsletter --yes
    """
    by_id = chosen(ids, queue, kind, everything)
    if by_id is None:
        confirm(f"cancel {scope(state, queue, kind)}, up to {limit}", yes)

    async def act() -> Sequence[Said]:
        async with target.admin() as admin:
            if by_id is not None:
                return await admin.cancel(by_id)
            return await admin.cancel_where(queue=queue, kind=kind, state=state, limit=limit)

    report(run(act()), "cancelled", as_json=as_json, limit=None if by_id is not None else limit)


def chosen(ids: Sequence[str], queue: str | None, kind: str | None, everything: bool) -> list[int] | None:
    """The ids that were typed; ``None`` when a filter was given instead."""
    filtered = everything or queue is not None or kind is not None
    if ids and filtered:
        raise click.UsageError("give ids or a filter, not both")
    if not ids and not filtered:
        raise click.UsageError("say which jobs: ids such as 5 7 10-20, or --queue, --kind or --all")
    return read_ids(ids) if ids else None


def scope(state: str, queue: str | None, kind: str | None) -> str:
    """The jobs of a filter, in words."""
    of_kind = f" of kind {kind!r}" if kind is not None else ""
    in_queue = f" in queue {queue!r}" if queue is not None else ""
    return f"every {state} job{of_kind}{in_queue}"


def confirm(question: str, yes: bool) -> None:
    """Ask on a terminal; elsewhere `--yes` is needed."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"to {question}, add --yes")
    click.confirm(question, abort=True)


def report(said: Sequence[Said], verb: str, *, as_json: bool, limit: int | None) -> None:
    """Say what became of each job; exit 1 unless all of it was done."""
    did = [each for each in said if each.did]
    left = [each for each in said if not each.did]
    if as_json:
        dump(said)
    else:
        asked = sum(each.said == "asked" for each in did)
        click.echo(
            f"{verb} {len(did)} of {len(said)} jobs" + (f", {asked} of them by their next heartbeat" if asked else "")
        )
        if left:
            show(
                left[:MOST_LINES],
                {"id": lambda each: each.id, "left alone": lambda each: REASONS.get(each.said, each.said)},
            )
        if len(left) > MOST_LINES:
            click.echo(f"and {len(left) - MOST_LINES} more")
        if limit is not None and len(said) == limit:
            click.echo("there may be more; run it again", err=True)
    finish(INCOMPLETE if left else 0)


REASONS = {
    "live": "it is queued or running",
    "done": "it succeeded",
    "over": "it is already over",
    "unknown": "there is no such job",
}
