"""Progress of a benchmark on stderr. It is drawn between rounds only, never while the clock runs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Self

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from howdah_lab.bench.runner import Step


class ProgressBar:
    """A bar on a terminal, a line per run elsewhere."""

    def __init__(self, steps: Mapping[Step, int]) -> None:
        """``steps``: every run, with the number of rounds in it."""
        self._starts = dict(zip(steps, _sums(steps.values()), strict=True))
        self._bar = Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("", total=sum(steps.values()))

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, step: Step) -> None:
        """Show that a run begins."""
        scenario, system, number = step
        text = f"{scenario} {number}: {system}" if scenario != system else f"{scenario} {number}"
        if self._bar.disable:
            click.echo(text, err=True)
        completed = self._starts.get(step)
        self._bar.update(self._task, description=text, completed=completed, refresh=True)

    def tick(self) -> None:
        """Show that a round of a run is over."""
        self._bar.update(self._task, advance=1, refresh=True)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        if self._bar.disable:
            click.echo(text, err=True)
        else:
            self._bar.console.print(text, markup=False, highlight=False)


def _sums(numbers: Iterable[int]) -> Iterator[int]:
    """Return the sums of all numbers before each.

    >>> list(_sums([2, 3, 4]))
    [0, 2, 5]
    """
    total = 0
    for number in numbers:
        yield total
        total += number
