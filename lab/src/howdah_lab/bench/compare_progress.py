"""Progress: how far it is, on stderr. It draws between runs only, never while a clock runs."""

from __future__ import annotations

import sys
from typing import Self

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from howdah_lab.bench.runner import Step


class Bar:
    """A bar on a terminal, a line per run elsewhere."""

    def __init__(self, steps: int) -> None:
        self._done = -1
        self._bar = Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("", total=steps)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tick(self, step: Step) -> None:
        """A run begins."""
        self._done += 1
        scenario, rival, number = step
        text = f"{scenario} {number}: {rival}" if scenario != rival else f"{scenario} {number}"
        if self._bar.disable:
            click.echo(text, err=True)
        self._bar.update(self._task, description=text, completed=self._done, refresh=True)

    def say(self, text: str) -> None:
        """A line above the bar."""
        if self._bar.disable:
            click.echo(text, err=True)
        else:
            self._bar.console.print(text, markup=False, highlight=False)
