"""`howdah retry`, `cancel`, `delete`, `reprioritize` and `move`: act on jobs, by id or by filter."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import click

from howdah.cli.output import INCOMPLETE, dump, finish, show
from howdah.cli.parameters import as_json
from howdah.cli.selection import MAX_SELECTED, JobSelection, choosing, confirm
from howdah.cli.target import Target, run, targeted
from howdah.jobs.actions import CHUNK, ActionProgress, Verb
from howdah.jobs.admin import Admin
from howdah.jobs.rows import ActionResult


class Stopped(Exception):
    """Ctrl-C was pressed; committed actions stay."""


class Bulk:
    """One action on the selected jobs. Ctrl-C stops it after the current transaction, a second one at once."""

    def __init__(self, verb: Verb, choice: JobSelection, to: str | int | None) -> None:
        self._verb = verb
        self._choice = choice
        self._to = to
        self._asked_to_stop = False
        self.began = False
        """True if the database was reached, so that something may have happened."""
        self.results: list[ActionResult] = []
        """The results so far."""
        self.stopped = False
        """True if it stopped before all jobs were processed."""
        self.more = False
        """True if more jobs match than the limit allows."""

    async def run(self, target: Target) -> None:
        """Act until no job is left, the limit is reached or Ctrl-C is pressed."""
        async with target.admin() as admin:
            self.began = True
            with self._interruptible(), _progress_line():
                try:
                    await (self._by_filter(admin) if self._choice.ids is None else self._by_id(admin, self._choice.ids))
                except Stopped:
                    self.stopped = True

    async def _by_id(self, admin: Admin, ids: Sequence[int]) -> None:
        conditions = {} if self._choice.state is None else {"state": self._choice.state}
        values = () if self._to is None else (self._to,)
        for start in range(0, len(ids), CHUNK):
            results = await getattr(admin, self._verb)(ids[start : start + CHUNK], *values, **conditions)
            self._add(results, last=start + CHUNK >= len(ids))

    async def _by_filter(self, admin: Admin) -> None:
        choice = self._choice

        def add(acted: ActionProgress) -> None:
            self._add(acted.chunk, last=acted.next is None or len(self.results) + len(acted.chunk) >= choice.limit)

        done = await admin.act(self._verb, choice.filter, to=self._to, limit=choice.limit, progress=add)
        if done.next is not None:
            rest = await admin.list(choice.filter, before=done.next, limit=1)
            self.more = bool(rest) or rest.cut

    def _add(self, results: Sequence[ActionResult], *, last: bool) -> None:
        self.results.extend(results)
        if sys.stderr.isatty():
            click.echo(f"\r{len(self.results):,} jobs so far", err=True, nl=False)
        if self._asked_to_stop and not last:
            raise Stopped

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        def asked() -> None:
            self._asked_to_stop = True
            loop.remove_signal_handler(signal.SIGINT)  # the second Ctrl-C is the ordinary one

        before = signal.getsignal(signal.SIGINT)
        with suppress(NotImplementedError, RuntimeError, ValueError):  # no main thread, or no such signals
            loop.add_signal_handler(signal.SIGINT, asked)
        try:
            yield
        finally:
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(signal.SIGINT)
                signal.signal(signal.SIGINT, before)


@contextmanager
def _progress_line() -> Iterator[None]:
    """Clear the line that showed the progress."""
    try:
        yield
    finally:
        if sys.stderr.isatty():
            click.echo("\r\x1b[K", err=True, nl=False)


MAX_LINES = 20


@click.command()
@choosing("failed", "cancelled")
@as_json
@targeted
def retry(target: Target, choice: JobSelection, yes: bool, as_json: bool) -> None:
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
def cancel(target: Target, choice: JobSelection, yes: bool, as_json: bool) -> None:
    """Cancel jobs: queued ones at once, running ones at their node's next heartbeat.

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
def delete(target: Target, choice: JobSelection, yes: bool, as_json: bool) -> None:
    """Delete queued or finished jobs with their attempts, logs and results. This cannot be undone.

    Exits 1 when some were left alone: running ones must be cancelled first.

    \b
    howdah delete 5 7 10-20
    howdah delete --state cancelled --kind send_newsletter --yes
    """
    act(target, "delete", choice, "deleted", yes=yes, as_json=as_json)


@click.command()
@click.option("--to", "priority", type=click.IntRange(-100, 100), required=True, help="New priority; larger first.")
@choosing("queued")
@as_json
@targeted
def reprioritize(target: Target, choice: JobSelection, priority: int, yes: bool, as_json: bool) -> None:
    """Change the priority of queued jobs; retries keep it. They line up behind jobs that have it already.

    Exits 1 when some were left alone: running, over, unknown, or of this priority already.

    \b
    howdah reprioritize --to 10 5 7 10-20
    howdah reprioritize --to -10 --kind send_newsletter --yes
    """
    act(target, "reprioritize", choice, "reprioritized", to=priority, yes=yes, as_json=as_json)


@click.command()
@click.option("--to", "queue_to", required=True, metavar="QUEUE", help="Target queue.")
@choosing("queued")
@as_json
@targeted
def move(target: Target, choice: JobSelection, queue_to: str, yes: bool, as_json: bool) -> None:
    """Move queued jobs to the end of another queue; retries stay there.

    Exits 1 when some were left alone: running, over, unknown, or in this queue already.

    \b
    howdah move --to bulk 5 7 10-20
    howdah move --to bulk --kind send_newsletter --yes
    """
    act(target, "move", choice, "moved", to=queue_to, yes=yes, as_json=as_json)


def act(
    target: Target,
    verb: Verb,
    choice: JobSelection,
    did: str,
    *,
    to: str | int | None = None,
    yes: bool,
    as_json: bool,
) -> None:
    """Ask for confirmation if needed, act, and print the results."""
    if choice.ids is None:
        destination = "" if to is None else f" to {to!r}"
        confirm(f"{verb} {choice}{destination}, up to {choice.limit}", yes)
    bulk = Bulk(verb, choice, to)
    try:
        run(bulk.run(target))
    except BaseException:
        if bulk.began:  # a commit whose answer was lost may have happened
            click.echo(f"{did} at least {counted(bulk.results)}", err=True)
        if as_json:
            dump(bulk.results)
        raise
    report(bulk, did, as_json=as_json, limited=choice.limited)


def counted(results: Sequence[ActionResult]) -> str:
    """Return progress as "n of m".

    >>> counted([ActionResult(id=1, result="deleted"), ActionResult(id=2, result="running")])
    '1 of 2 jobs'
    """
    return f"{sum(each.did for each in results)} of {len(results)} jobs"


def report(bulk: Bulk, verb: str, *, as_json: bool, limited: bool) -> None:
    """Print the results; exit 1 unless every job was processed."""
    left = [each for each in bulk.results if not each.did]
    if as_json:
        dump(bulk.results)
    else:
        asked = sum(each.result == "asked" for each in bulk.results)
        click.echo(f"{verb} {counted(bulk.results)}" + (f", {asked} of them by their next heartbeat" if asked else ""))
        if left:
            show(
                left[:MAX_LINES],
                {"id": lambda each: each.id, "left alone": lambda each: REASONS.get(each.result, each.result)},
            )
        if len(left) > MAX_LINES:
            click.echo(f"and {len(left) - MAX_LINES} more")
    rest = ""
    if bulk.stopped:
        rest = "stopped before all were met; run it again for the rest"
    elif bulk.more:
        rest = "there may be more; run it again" + ("" if limited else f", or give a --limit of up to {MAX_SELECTED:,}")
    if rest:
        click.echo(f"{verb} {counted(bulk.results)}; {rest}" if as_json else rest, err=True)
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
