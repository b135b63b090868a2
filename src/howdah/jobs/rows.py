"""Read models of the admin: jobs, attempts, queues, nodes and schedules as values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from howdah.redact import Redact, readable_json, secret_spellings
from howdah.secrets import MARK, marks


def shown(row: JobRow, redact: Redact) -> JobRow:
    """Return the row without its secrets, for display."""
    places = marks(row.meta)
    secrets = secret_spellings(row.args, places)

    def text(part: str, value: str | None) -> str | None:
        return redact.text(value, secrets, kind=row.kind, part=part)

    return replace(
        row,
        args=redact(_readable(row.args), places, kind=row.kind),
        meta=redact(_given(_readable(row.meta)), kind=row.kind, part="meta"),
        result=redact(_readable(row.result), kind=row.kind, part="result"),
        error=text("error", row.error),
        attempts=[
            replace(each, message=text("message", each.message), traceback=text("traceback", each.traceback))
            for each in row.attempts
        ],
    )


def _readable(value: Any) -> Any:
    """Return values whose JSON Python cannot hold, which are text in a row, so that secrets in them are hidden too."""
    return readable_json(value) if isinstance(value, str) and value[:1] in ("{", "[") else value


def is_visible(text: str, row: JobRow, redact: Redact) -> bool:
    """Return whether a text is in the arguments or the error of a job as they are displayed."""
    seen = shown(row, redact)
    if seen.error is not None and text in seen.error:
        return True
    try:
        args = msgspec.json.encode(seen.args).decode()
    except (TypeError, msgspec.MsgspecError, RecursionError):
        return False
    return text in args or _SPACES.sub("", text) in _SPACES.sub("", args)  # stored with spaces or without


_SPACES = re.compile(r"\s+")


def shown_failures(found: Failures, redact: Redact) -> Failures:
    """Return groups of failures without secrets, for display."""

    def group(each: FailureGroup) -> FailureGroup:
        message = redact.text(each.message, kind=each.kind) or ""
        name = _CLASS.match(message)
        return replace(
            each,
            message=message,
            error=name[1] if name else None,
            fingerprint=redact.text(each.fingerprint, kind=each.kind) or "",
        )

    return replace(found, groups=[group(each) for each in found.groups])


_CLASS = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*): ")


def _given(meta: Any) -> Any:
    """Return the metadata given at enqueue, without Howdah's own mark."""
    if not isinstance(meta, dict) or MARK not in meta:
        return meta
    return {key: value for key, value in meta.items() if key != MARK} or None


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that did not succeed."""

    attempt: int
    outcome: str
    """retry, failed, cancelled or lost."""
    node: int | None
    node_name: str | None
    started_at: datetime | None
    ended_at: datetime
    error: str | None
    """The class of the error."""
    message: str | None
    traceback: str | None


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known about one job."""

    id: int
    kind: str
    queue: str
    state: str | None
    """``None`` only while a job moves between tables."""
    priority: int
    attempt: int | None
    max_attempts: int
    resets: int
    """Attempts that ended because their node stopped responding."""
    key: str | None
    args: Any
    meta: Any
    trace: str | None
    timeout: float | None
    enqueued_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    node: int | None
    node_name: str | None
    token: int | None
    expires_at: datetime | None
    result: Any
    error: str | None
    cancel_asked: bool
    attempts: Sequence[AttemptRow] = ()
    """The attempts that did not succeed, oldest first; empty in lists."""

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Iterate over names and values, so that ``dict(row)`` and the responses of FastAPI work."""
        return iter(msgspec.to_builtins(self).items())

    @classmethod
    def of(cls, row: Mapping[str, Any], attempts: Sequence[AttemptRow] = ()) -> JobRow:
        """Build from a row of the view."""
        facts = dict(row)
        for name in ("args", "meta", "result"):
            facts[name] = _decode(facts[name])
        return cls(**facts, attempts=attempts)


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """One queue: queued, running and recently finished jobs."""

    name: str
    queued: int
    """Due now."""
    scheduled: int
    """Not due yet, or waiting to retry."""
    running: int
    oldest_age: float | None
    """Seconds the oldest queued job has waited."""
    paused: bool
    paused_at: datetime | None
    paused_by: str | None
    done_hour: int
    done_day: int
    failed_hour: int
    failed_day: int


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One node, running or stopped."""

    id: int
    name: str
    state: str
    version: str
    queues: Sequence[str] | None
    """``None``: every queue."""
    kinds: Sequence[str] | None
    slots: int
    running: int
    deaf: bool
    started_at: datetime
    beat_at: datetime
    beat_age: float
    """Seconds since its last heartbeat, by the server's clock."""
    stopped_at: datetime | None
    leases: int


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One recurring job."""

    name: str
    kind: str
    cron: str
    zone: str
    next_at: datetime
    last_at: datetime | None
    """The last slot a job was enqueued for."""
    last_job: int | None
    last_state: str | None
    paused: bool
    error: str | None = None
    """Why its job could not be enqueued at the last attempt."""


class ActionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an action on one job."""

    id: int
    result: str

    @property
    def did(self) -> bool:
        """True if the action was carried out, or requested from the node that runs the job."""
        return self.result in ("queued", "cancelled", "asked", "deleted", "reprioritized", "moved")


class JobPage(list[JobRow]):
    """A page of jobs."""

    def __init__(self, rows: Iterable[JobRow], *, looked: int, next: int | None, cut: bool) -> None:
        super().__init__(rows)
        self.looked = looked
        """Jobs examined to find these."""
        self.next = next
        """Pass it as ``before`` to get the next page; ``None``: there are no more."""
        self.cut = cut
        """True if the time limit was reached, so that only the newest ``looked`` jobs were examined."""


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """A number of jobs, possibly a lower bound.

    >>> str(Count(jobs=1234, more=False)), str(Count(jobs=10_000, more=True))
    ('1,234', '10,000+')
    """

    jobs: int
    more: bool
    """True if counting stopped here and there are more."""

    def __str__(self) -> str:
        return f"{self.jobs:,}{'+' if self.more else ''}"


class FailureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Failed jobs of one kind whose errors differ only in numbers and names."""

    kind: str
    error: str | None
    """The class of the error."""
    fingerprint: str
    """The common part of the errors; ``Filter(state="failed", kind=…, fingerprint=…)`` finds the jobs."""
    message: str
    """The error of the example."""
    count: int
    first_at: datetime
    last_at: datetime
    example: int
    """The id of the newest one."""
    queues: Sequence[str]


class Failures(msgspec.Struct, frozen=True, kw_only=True):
    """The newest failures, grouped; the largest group first."""

    groups: Sequence[FailureGroup]
    more: int
    """Groups that are not listed."""
    looked: int
    """Failed jobs examined, newest first."""
    cut: bool
    """True if older ones were not examined."""
    oldest: datetime | None
    """When the oldest examined job failed."""


def _decode(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data.decode(
            "utf-8", "replace"
        )  # JSON of another writer, with numbers or escapes that Python cannot hold
