"""Bulk: an act on many jobs, transaction by transaction: how far it came, also when it is interrupted."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import click

from howdah.cli.choice import Choice
from howdah.cli.common import Target
from howdah.jobs.acts import CHUNK, Acted, Verb
from howdah.jobs.admin import Admin
from howdah.jobs.rows import Said


class Stopped(Exception):
    """Ctrl-C was pressed; what is committed stays."""


class Bulk:
    """One act on the jobs of a choice. Ctrl-C ends it after the transaction at hand, a second one at once."""

    def __init__(self, verb: Verb, choice: Choice, to: str | int | None) -> None:
        self._verb = verb
        self._choice = choice
        self._to = to
        self._asked_to_stop = False
        self.began = False
        """Whether the database was reached, so that something may have happened."""
        self.said: list[Said] = []
        """What became of each job so far."""
        self.stopped = False
        """Whether it ended before all jobs were met."""
        self.more = False
        """Whether more jobs fit than the limit allowed."""

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
            said = await getattr(admin, self._verb)(ids[start : start + CHUNK], *values, **conditions)
            self._heard(said, last=start + CHUNK >= len(ids))

    async def _by_filter(self, admin: Admin) -> None:
        choice = self._choice

        def heard(acted: Acted) -> None:
            self._heard(acted.chunk, last=acted.next is None or len(self.said) + len(acted.chunk) >= choice.limit)

        done = await admin.act(self._verb, choice.filter, to=self._to, limit=choice.limit, progress=heard)
        if done.next is not None:
            rest = await admin.list(choice.filter, before=done.next, limit=1)
            self.more = bool(rest) or rest.cut

    def _heard(self, said: Sequence[Said], *, last: bool) -> None:
        self.said.extend(said)
        if sys.stderr.isatty():
            click.echo(f"\r{len(self.said):,} jobs so far", err=True, nl=False)
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
