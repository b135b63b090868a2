"""Filters and references of jobs, for lists, counts and actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, TypedDict

from howdah.errors import ConfigError
from howdah.job import State
from howdah.jobs.rows import JobRow

MOVING = "moving"
"""The state of a row that was read while its job moved between tables; no job matches it."""


class ExpectedJob(NamedTuple):
    """A job with the state and end time the caller saw; ``None`` matches anything. A changed job is skipped."""

    id: int
    state: str | None = None
    ended: datetime | None = None

    @classmethod
    def of(cls, job: JobReference, state: State | str | None = None) -> ExpectedJob:
        """Return the expectation of a row (its own state) or of an id (the given state)."""
        if isinstance(job, ExpectedJob):
            return job
        if isinstance(job, JobRow):
            return cls(job.id, job.state or MOVING, job.finished_at)
        return cls(job, None if state is None else str(state))


JobReference = int | JobRow | ExpectedJob
"""A job to act on: by id, by row, or as expected."""


def columns(jobs: Sequence[ExpectedJob]) -> tuple[list[int], list[str | None], list[datetime | None]]:
    """Return ids, states and ends as the SQL functions take them.

    >>> columns([ExpectedJob(1), ExpectedJob(2, "failed")])
    ([1, 2], [None, 'failed'], [None, None])
    """
    return [job.id for job in jobs], [job.state for job in jobs], [job.ended for job in jobs]


LONGEST_TEXT = 1000
TIMES = ("enqueued_after", "enqueued_before", "finished_after", "finished_before")
ENDED = (State.DONE, State.FAILED, State.CANCELLED)


class Fields(TypedDict, total=False):
    """The fields of a :class:`Filter`, but for its state, as keyword arguments."""

    queue: str | None
    kind: str | None
    key: str | None
    enqueued_after: datetime | None
    enqueued_before: datetime | None
    finished_after: datetime | None
    finished_before: datetime | None
    text: str | None
    fingerprint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Jobs that match all of these; ``None`` matches anything."""

    state: State | str | None = None
    queue: str | None = None
    kind: str | None = None
    key: str | None = None
    enqueued_after: datetime | None = None
    """At this moment or later."""
    enqueued_before: datetime | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None
    text: str | None = None
    """A substring of the arguments or of the last error; case-sensitive."""
    fingerprint: str | None = None
    """The fingerprint of ``admin.failures``; failed and cancelled jobs only."""

    def __post_init__(self) -> None:
        if self.state is not None and self.state not in tuple(State):
            raise ConfigError(f"there is no state {self.state!r}; use {', '.join(State)}")
        for name in TIMES:
            moment = getattr(self, name)
            if moment is not None and moment.tzinfo is None:
                raise ConfigError(f"{name} {moment.isoformat()} has no time zone; add one")
        if self.state in (State.QUEUED, State.RUNNING) and (self.finished_after or self.finished_before):
            raise ConfigError(f"no {self.state} job has finished; leave out finished_after and finished_before")
        if self.fingerprint is not None and self.state not in (State.FAILED, State.CANCELLED):
            raise ConfigError("only failed and cancelled jobs have a fingerprint; add state='failed'")
        for name in ("queue", "kind", "key", "text", "fingerprint"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or "\0" in value or len(value) > LONGEST_TEXT):
                raise ConfigError(f"{name} must be at most {LONGEST_TEXT} characters of text, got {value!r:.80}")

    @classmethod
    def of(cls, state: Filter | State | str | None, fields: Fields) -> Filter:
        """Return a filter with more of its fields set."""
        return replace(state, **fields) if isinstance(state, Filter) else cls(state=state, **fields)

    @property
    def said(self) -> dict[str, Any]:
        """The fields that are set, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def plain(self) -> bool:
        """True if only the state is set."""
        return not self.said.keys() - {"state"}

    @property
    def inspects(self) -> bool:
        """True if matching needs more than state, queue, kind and key."""
        return bool(self.said.keys() - {"state", "queue", "kind", "key"})

    def __str__(self) -> str:
        words = [f"{name} {value}" for name, value in self.said.items() if name != "state"]
        return " with ".join([f"{self.state or 'any'} jobs", *([", ".join(words)] if words else [])])
