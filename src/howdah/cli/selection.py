"""The jobs that a command selects, by id or by filter."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from howdah.cli.parameters import MOMENT, read_ids
from howdah.jobs.search import Filter

T = TypeVar("T")
MAX_SELECTED = 100_000
"""Jobs that one command may select."""
TIMES = ("enqueued_after", "enqueued_before", "finished_after", "finished_before")


@dataclass(frozen=True, slots=True)
class JobSelection:
    """Jobs selected by id or by filter."""

    ids: list[int] | None
    """``None``: by filter."""
    filter: Filter
    limit: int
    limited: bool = False
    """True if the limit was given on the command line."""
    state: str | None = None
    """The state that jobs given by id must be in; ``None``: any."""

    def __str__(self) -> str:
        """Describe the selection."""
        conditions = self.filter.given
        words = [f"every {conditions.pop('state')} job"]
        if "kind" in conditions:
            words.append(f"of kind {conditions.pop('kind')!r}")
        if "queue" in conditions:
            words.append(f"in queue {conditions.pop('queue')!r}")
        for name, value in conditions.items():
            shown = value.isoformat(timespec="seconds") if isinstance(value, datetime) else repr(value)
            words.append(f"with {name.replace('_', ' ')} {shown}")
        return " ".join(words)


def filtering(command: Callable[..., T]) -> Callable[..., T]:
    """Add the filter options, except the state, to a command."""
    for option in reversed(
        (
            click.option("-q", "--queue", help="Only jobs of this queue."),
            click.option("-k", "--kind", help="Only jobs of this kind."),
            click.option("--key", help="Only jobs with this unique key."),
            click.option("--text", help="Only jobs with this text in their arguments or error; case-sensitive."),
            *(
                click.option(
                    f"--{name.replace('_', '-')}",
                    type=MOMENT,
                    metavar="MOMENT",
                    help=f"Only jobs {name.split('_')[0]} {'since' if name.endswith('after') else 'before'} then: a"
                    " time with its zone, or 24h for a day ago.",
                )
                for name in TIMES
            ),
        )
    ):
        command = option(command)
    return command


def choosing(*states: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Add ids and filters to a command, and pass it a :class:`JobSelection`; the first state is the default."""

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        @click.argument("ids", nargs=-1)
        @filtering
        @click.option("--all", "everything", is_flag=True, help=f"Every {states[0]} job.")
        @click.option(
            "-s",
            "--state",
            type=click.Choice(states),
            default=states[0],
            show_default=True,
            help="Only jobs in this state; with ids, only if given.",
        )
        @click.option(
            "-n",
            "--limit",
            type=click.IntRange(1, MAX_SELECTED),
            default=1000,
            show_default=True,
            help="Most jobs, with a filter.",
        )
        @click.option("-y", "--yes", is_flag=True, help="Do not ask.")
        @functools.wraps(command)
        def wrapped(
            *args: Any,
            ids: Sequence[str],
            everything: bool,
            state: str,
            limit: int,
            queue: str | None,
            kind: str | None,
            key: str | None,
            text: str | None,
            enqueued_after: datetime | None,
            enqueued_before: datetime | None,
            finished_after: datetime | None,
            finished_before: datetime | None,
            **options: Any,
        ) -> T:
            filter = Filter(
                state=state,
                queue=queue,
                kind=kind,
                key=key,
                text=text,
                enqueued_after=enqueued_after,
                enqueued_before=enqueued_before,
                finished_after=finished_after,
                finished_before=finished_before,
            )
            filtered = everything or not filter.plain
            if ids and filtered:
                raise click.UsageError("give ids or a filter, not both")
            if not ids and not filtered:
                raise click.UsageError("say which jobs: ids such as 5 7 10-20, or --queue, --kind or --all")
            choice = JobSelection(
                read_ids(ids) if ids else None,
                filter,
                limit,
                limited=_given("limit"),
                state=state if _given("state") else None,
            )
            return command(*args, choice=choice, **options)

        return wrapped

    return decorate


def _given(option: str) -> bool:
    """Return whether an option was given on the command line."""
    return click.get_current_context().get_parameter_source(option) is not ParameterSource.DEFAULT


def confirm(question: str, yes: bool) -> None:
    """Ask on a terminal; elsewhere `--yes` is needed."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"to {question}, add --yes")
    click.confirm(question, abort=True)
