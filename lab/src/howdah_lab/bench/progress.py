"""Progress of a benchmark on stderr. It is drawn between rounds only, never while the clock runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from howdah_lab.bench.plan import OwnScenario


class Steps:
    """A bar on a terminal, a line per scenario elsewhere."""

    def __init__(self, scenarios: Sequence[OwnScenario], rounds: int) -> None:
        self._left = sum(scenario.steps(rounds) for scenario in scenarios)
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("{task.description:<15}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                auto_refresh=False,
                transient=True,
            )
            self._task = self._bar.add_task("", total=self._left)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def begin(self, scenario: OwnScenario) -> None:
        """A scenario begins."""
        if self._bar:
            self._bar.update(self._task, description=scenario.name, refresh=True)
        else:
            click.echo(f"{scenario.name}: {scenario.about}", err=True)

    def tick(self) -> None:
        """A round is over."""
        if self._bar:
            self._bar.update(self._task, advance=1, refresh=True)
