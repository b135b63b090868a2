"""Seen: a job as the caller saw it before acting on it; a job that has changed since is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from howdah.job import State
from howdah.jobs.rows import JobRow

MOVING = "moving"
"""The state of a row that was read while its job was on its way from one place to the next; no job is ever in it."""


class Seen(NamedTuple):
    """A job, its state, and for a job that has ended the moment it ended; ``None`` matches anything."""

    id: int
    state: str | None = None
    ended: datetime | None = None

    @classmethod
    def of(cls, job: Named, state: State | str | None = None) -> Seen:
        """Return what is known of a job: a row carries its own state, an id has the one given."""
        if isinstance(job, Seen):
            return job
        if isinstance(job, JobRow):
            return cls(job.id, job.state or MOVING, job.finished_at)
        return cls(job, None if state is None else str(state))


Named = int | JobRow | Seen
"""A job to act on: by id, or as it was seen."""


def columns(jobs: Sequence[Seen]) -> tuple[list[int], list[str | None], list[datetime | None]]:
    """Return ids, states and ends as the SQL functions take them.

    >>> columns([Seen(1), Seen(2, "failed")])
    ([1, 2], [None, 'failed'], [None, None])
    """
    return [job.id for job in jobs], [job.state for job in jobs], [job.ended for job in jobs]
