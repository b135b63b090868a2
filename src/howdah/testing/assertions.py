"""Assert that jobs were enqueued, or were not; a failure shows what was enqueued instead."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from howdah.app import Howdah
from howdah.arguments import encode, reveal
from howdah.errors import ArgumentError, ConfigError
from howdah.job import State
from howdah.jobs.rows import JobRow
from howdah.postgres import sql
from howdah.secrets import marks, masked
from howdah.sync_bridge import reject_in_loop, run_in_thread
from howdah.task import Task

MAX_SEARCHED = 10_000
"""Maximum number of jobs of one kind that are searched."""
MAX_SHOWN = 20
LONGEST_CALL = 300
RUN_AT_TOLERANCE = timedelta(seconds=1)
"""Tolerance of ``run_at``: the clocks of server and test may differ."""
LIVE = (State.QUEUED, State.RUNNING, None)


async def assert_enqueued(
    app: Howdah,
    task: Task[..., Any] | str,
    *args: Any,
    count: int | None = None,
    queue: str | None = None,
    key: str | None = None,
    run_at: datetime | timedelta | None = None,
    finished: bool = False,
    **kwargs: Any,
) -> list[JobRow]:
    """Assert that a job of ``task`` with these arguments is queued or running, and return all such jobs, oldest first.

    Arguments not named are not compared. ``count``: the exact number; ``run_at``: when it is due, to the second, as a
    time or as a delay after it was enqueued; ``finished``: finished jobs count as well.
    """
    __tracebackhide__ = True
    wanted = _Wanted.of(app, task, args, kwargs, queue, key, run_at, finished)
    found, others = await _find(app, wanted)
    if len(found) == count or (found and count is None):
        return found
    raise AssertionError(_message(wanted, found, others, count))


async def refute_enqueued(
    app: Howdah,
    task: Task[..., Any] | str,
    *args: Any,
    queue: str | None = None,
    key: str | None = None,
    run_at: datetime | timedelta | None = None,
    finished: bool = False,
    **kwargs: Any,
) -> None:
    """Assert that no job of ``task`` with these arguments is queued or running (with ``finished``: or finished)."""
    __tracebackhide__ = True
    if isinstance(task, str) and task not in app.handlers:  # a misspelt name would never match
        near = difflib.get_close_matches(task, app.handlers, 1)
        raise ConfigError(f"no task is named {task!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    wanted = _Wanted.of(app, task, args, kwargs, queue, key, run_at, finished)
    found, others = await _find(app, wanted)
    if found:
        raise AssertionError(_message(wanted, found, others, 0))


def assert_enqueued_sync(app: Howdah, task: Task[..., Any] | str, *args: Any, **kwargs: Any) -> list[JobRow]:
    """:func:`assert_enqueued` for synchronous tests."""
    __tracebackhide__ = True
    reject_in_loop("await assert_enqueued(…) instead")
    return run_in_thread(assert_enqueued(app, task, *args, **kwargs))


def refute_enqueued_sync(app: Howdah, task: Task[..., Any] | str, *args: Any, **kwargs: Any) -> None:
    """:func:`refute_enqueued` for synchronous tests."""
    __tracebackhide__ = True
    reject_in_loop("await refute_enqueued(…) instead")
    run_in_thread(refute_enqueued(app, task, *args, **kwargs))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The expected job."""

    kind: str
    args: dict[str, Any]
    defaults: dict[str, Any]
    queue: str | None
    key: str | None
    run_at: datetime | timedelta | None
    finished: bool
    secrets: Sequence[str]
    """JSON pointers to the secrets in the arguments."""

    @classmethod
    def of(
        cls,
        app: Howdah,
        task: Task[..., Any] | str,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        queue: str | None,
        key: str | None,
        run_at: datetime | timedelta | None,
        finished: bool,
    ) -> _Wanted:
        if isinstance(run_at, datetime) and run_at.tzinfo is None:
            raise ArgumentError(f"run_at must name its time zone, got {run_at!r}; add tzinfo")
        known = app.tasks.get(task) if isinstance(task, str) else task
        kind = known.kind if known else str(task)
        given, defaults = _bind(known, args, kwargs) if known else (_plain(kind, _unknown(kind, args, kwargs)), {})
        return cls(
            kind=kind,
            args=given,
            defaults=defaults,
            queue=queue,
            key=key,
            run_at=run_at,
            finished=finished,
            secrets=known.handler.arguments.secrets if known else (),
        )

    def matches(self, job: JobRow) -> bool:
        if not self.finished and job.state not in LIVE:
            return False
        if self.queue not in (None, job.queue) or self.key not in (None, job.key):
            return False
        if self.run_at is not None:
            due = job.enqueued_at + self.run_at if isinstance(self.run_at, timedelta) else self.run_at
            if abs(job.run_at - due) > RUN_AT_TOLERANCE:
                return False
        sent = {**self.defaults, **job.args} if isinstance(job.args, dict) else {}
        return all(name in sent and sent[name] == value for name, value in self.args.items())

    def __str__(self) -> str:
        facts = [("queue", self.queue), ("key", self.key), ("run_at", self.run_at)]
        conditions = ", ".join(f"{name} {value}" for name, value in facts if value is not None)
        return call(self.kind, masked(self.args, self.secrets)) + (f" with {conditions}" if conditions else "")


def _bind(task: Task[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments by name and the defaults of those not sent, in their JSON form."""
    if getattr(task.handler.arguments, "free", False):
        return _plain(task.kind, _unknown(task.kind, args, kwargs)), {}
    injected = set(task.handler.arguments.injected.values())
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(task.handler.function).parameters.items()
        if name not in injected
    }
    positional = [name for name, each in parameters.items() if each.kind is not each.KEYWORD_ONLY]
    unknown = [name for name in kwargs if name not in parameters]
    if len(args) > len(positional) or unknown:
        what = f"no parameter {unknown[0]!r}" if unknown else f"{len(positional)} positional parameters"
        raise ArgumentError(f"task {task.kind!r} has {what}; it takes {', '.join(parameters) or 'none'}")
    given = {**dict(zip(positional, args, strict=False)), **kwargs}
    defaults = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
    return _plain(task.kind, given), _plain(task.kind, defaults)


def _unknown(kind: str, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    if args:
        raise ArgumentError(f"the parameters of task {kind!r} are not known here; give its arguments by name")
    return kwargs


def _plain(kind: str, values: dict[str, Any]) -> dict[str, Any]:
    return msgspec.json.decode(encode(values, what=f"the call of task {kind!r}", hook=reveal), type=dict[str, Any])


async def _find(app: Howdah, wanted: _Wanted) -> tuple[list[JobRow], list[JobRow]]:
    """Return the jobs that match, and some that do not, those of the same kind first."""
    find = sql.load("howdah.testing", schema=app.database.schema)["find"]
    conn = await app.database.connect("look")
    try:
        same = [JobRow.of(row) for row in await conn.fetch(find, wanted.kind, MAX_SEARCHED)]
        every = [JobRow.of(row) for row in await conn.fetch(find, None, MAX_SHOWN)]
    finally:
        conn.terminate()
    found = [job for job in same if wanted.matches(job)]
    others = [job for job in same if not wanted.matches(job)]
    return found, others + [job for job in every if job.kind != wanted.kind]


def _message(wanted: _Wanted, found: list[JobRow], others: list[JobRow], count: int | None) -> str:
    number = "at least 1" if count is None else str(count)
    lines = [f"expected {number} of {wanted}, found {len(found)}"]
    if found:
        lines += ["found:", *_listed(found)]
    if others:
        lines += ["other jobs:" if found else "enqueued instead:", *_listed(others)]
    elif not found:
        lines.append("no job is enqueued at all; was the transaction committed?")
    if not wanted.finished and any(job.kind == wanted.kind and job.state not in LIVE for job in others):
        lines.append("finished jobs do not count; pass finished=True to include them")
    return "\n".join(lines)


def _listed(jobs: list[JobRow]) -> list[str]:
    more = len(jobs) - MAX_SHOWN
    return [f"  {_line(job)}" for job in jobs[:MAX_SHOWN]] + ([f"  … and {more} more"] if more > 0 else [])


def _line(job: JobRow) -> str:
    """Format a job in one line."""
    facts = [f"queue {job.queue}", job.state or "on the move"]
    wait = (job.run_at - datetime.now(UTC)).total_seconds()
    if job.state == "queued" and wait > 0:
        facts[1] = f"due in {wait:.0f} s"
    if job.key is not None:
        facts.append(f"key {job.key!r}")
    if job.error:
        facts.append(job.error.splitlines()[0])
    return f"job {job.id}: {call(job.kind, masked(job.args, marks(job.meta)))}, {', '.join(facts)}"


def call(kind: str, args: Any) -> str:
    """Format a job as a call.

    >>> call("mail:send", {"user_id": 7, "lang": "de"})
    'mail:send(user_id=7, lang="de")'
    """
    if isinstance(args, dict):
        text = ", ".join(f"{name}={msgspec.json.encode(value).decode()}" for name, value in args.items())
    else:
        text = msgspec.json.encode(args).decode()
    return f"{kind}({text if len(text) <= LONGEST_CALL else text[:LONGEST_CALL] + '…'})"
