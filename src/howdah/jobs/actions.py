"""Actions of operators on jobs, by id or by filter, in small transactions, each with its audit record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, NamedTuple

import asyncpg
import msgspec

from howdah.audit import AuditTrail, common
from howdah.errors import ConfigError
from howdah.handler import check_name
from howdah.job import State
from howdah.jobs.rows import ActionResult, JobRow
from howdah.jobs.search import ENDED, AdminConnection, Filter, Search

Verb = Literal["retry", "cancel", "delete", "reprioritize", "move"]
CHUNK = 1000
"""Jobs acted on in one transaction."""
TRIES = 3
ALLOWED_STATES: dict[str, tuple[State, ...]] = {
    "retry": (State.FAILED, State.CANCELLED),
    "cancel": (State.QUEUED, State.RUNNING),
    "delete": (State.QUEUED, State.DONE, State.FAILED, State.CANCELLED),
    "reprioritize": (State.QUEUED,),
    "move": (State.QUEUED,),
}
REARRANGE = ("reprioritize", "move")
PAST_TENSE = {
    "retry": "retried",
    "cancel": "cancelled",
    "delete": "deleted",
    "reprioritize": "reprioritized",
    "move": "moved",
}
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


class ActionProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of an action on many jobs."""

    verb: str
    did: int = 0
    left: int = 0
    """Jobs that were skipped because they had changed."""
    next: int | None = None
    """Pass it as ``before`` to continue; ``None``: nothing is left."""
    chunk: Sequence[ActionResult] = ()
    """The result for each job of the last transaction."""


class JobActions:
    """Carries out an action and records who did it, in one transaction."""

    def __init__(self, connection: AdminConnection, search: Search, trail: AuditTrail) -> None:
        self._connection = connection
        self._search = search
        self._trail = trail

    async def on(
        self, verb: Verb, jobs: Sequence[JobReference], to: str | int | None = None, *, state: State | str | None = None
    ) -> list[ActionResult]:
        """Act on these jobs, a thousand per transaction; return the result for each.

        A job that differs from what was expected, or is not in ``state``, is skipped: ``changed``.
        """
        check(verb, to)
        check_state(verb, state)
        seen = [ExpectedJob.of(job, state) for job in jobs]
        results: list[ActionResult] = []
        for start in range(0, len(seen), CHUNK):
            results += await self._try(verb, seen[start : start + CHUNK], to, None)
        return results

    async def on_all(
        self,
        verb: Verb,
        filter: Filter,
        *,
        to: str | int | None = None,
        before: int | None = None,
        limit: int | None = None,
        progress: Callable[[ActionProgress], object] | None = None,
    ) -> ActionProgress:
        """Act on every matching job that exists now, newest first, each once, even if it fails again meanwhile."""
        check(verb, to)
        filter = suitable(verb, filter)
        async with self._connection.read() as conn:
            newest = await conn.fetchval(self._connection.sql["newest_id"])
        acted = ActionProgress(verb=verb, next=newest + 1 if before is None else min(before, newest + 1))
        while acted.next is not None and (limit is None or acted.did + acted.left < limit):
            most = CHUNK if limit is None else min(CHUNK, limit - acted.did - acted.left)
            acted = await self._step(acted, filter, to, most)
            if progress:
                progress(acted)
        return acted

    async def _step(self, acted: ActionProgress, filter: Filter, to: str | int | None, most: int) -> ActionProgress:
        async with self._connection.read() as conn:
            found = await self._search.find(conn, filter, before=acted.next, limit=most)
            ends: dict[int, datetime] = {}
            if filter.state in ENDED:  # in the snapshot of the search
                ends = {
                    row["id"]: row["finished_at"]
                    for row in await conn.fetch(self._connection.sql["end_times"], found.ids)
                }
        seen = [ExpectedJob(id, str(filter.state), ends.get(id)) for id in found.ids]
        results = await self._try(acted.verb, seen, to, filter) if seen else []
        did = sum(each.did for each in results)
        return ActionProgress(
            verb=acted.verb,
            did=acted.did + did,
            left=acted.left + len(results) - did,
            next=found.next,
            chunk=results,
        )

    async def _try(
        self, verb: str, jobs: list[ExpectedJob], to: str | int | None, filter: Filter | None
    ) -> list[ActionResult]:
        for left in reversed(range(TRIES)):
            try:
                async with self._connection.act() as conn:
                    return await self._once(conn, verb, jobs, to, filter)
            except asyncpg.DeadlockDetectedError:  # with another action on the same jobs in another order
                if not left:
                    raise
        raise AssertionError

    async def _once(
        self, conn: Any, verb: str, jobs: list[ExpectedJob], to: str | int | None, filter: Filter | None
    ) -> list[ActionResult]:
        suited, other = (jobs, []) if verb not in REARRANGE else _waiting(jobs)
        ids, states, ends = columns(suited)
        queue = filter.queue if filter else None
        values: tuple[Any, ...]
        match verb:
            case "retry":
                values = (ids, states, ends)
            case "delete":
                values = (ids, states, ends, queue)
            case "cancel":
                values = (ids, states, queue)
            case _:
                values = (ids, queue, to)
        rows = await conn.fetch(self._connection.sql[verb], *values)
        results = [ActionResult(id=row["id"], result=row["result"]) for row in rows]
        left = await self._left_alone(conn, other) if other else []
        did = [row for row, each in zip(rows, results, strict=True) if each.did]
        if did:
            before, after = change(verb, did, to)
            scope = filter.given if filter else None
            done = [row["id"] for row in did]
            await self._trail.record(conn, verb, "job", done, before=before, after=after, filter=scope)
        return results + left

    async def _left_alone(self, conn: Any, jobs: list[ExpectedJob]) -> list[ActionResult]:
        """Return the results for jobs that were not expected to be queued."""
        rows = await conn.fetch(self._connection.sql["states"], [job.id for job in jobs])
        now = {row["id"]: row["state"] for row in rows}
        return [ActionResult(id=job.id, result=_why_left(job, now.get(job.id, ""))) for job in jobs]


def _waiting(jobs: list[ExpectedJob]) -> tuple[list[ExpectedJob], list[ExpectedJob]]:
    """Split jobs into those expected to be queued (or without an expectation), and the others."""
    suited = [job for job in jobs if job.state in (None, State.QUEUED)]
    return suited, [job for job in jobs if job.state not in (None, State.QUEUED)]


def _why_left(job: ExpectedJob, state: str | None) -> str:
    if state == "":
        return "unknown"
    if state != job.state:
        return "changed"
    return "over" if state in ENDED else "running"


def check(verb: str, to: object) -> None:
    """Raise :class:`ConfigError` if the action or its value is invalid."""
    if verb not in ALLOWED_STATES:
        raise ConfigError(f"there is no action {verb!r}; use {', '.join(ALLOWED_STATES)}")
    if verb == "reprioritize":
        if not isinstance(to, int) or isinstance(to, bool) or not -100 <= to <= 100:
            raise ConfigError(f"priority must be from -100 to 100, got {to!r}")
    elif verb == "move":
        check_name("queue", to)
    elif to is not None:
        raise ConfigError(f"{verb} takes no value, got {to!r}; only reprioritize and move do")


def check_state(verb: str, state: State | str | None) -> None:
    """Raise :class:`ConfigError` if the action does not apply to this state."""
    if state is not None and state not in ALLOWED_STATES[verb]:
        states = " and ".join(map(str, ALLOWED_STATES[verb]))
        raise ConfigError(f"only {states} jobs can be {PAST_TENSE[verb]}, got state {str(state)!r}")


def suitable(verb: str, filter: Filter) -> Filter:
    """Return the filter with a state to which the action applies."""
    if filter.state is None:
        if verb == "delete":
            states = " and ".join(map(str, ALLOWED_STATES[verb]))
            raise ConfigError(f"only {states} jobs can be {PAST_TENSE[verb]}, got state none")
        return replace(filter, state=ALLOWED_STATES[verb][0])
    check_state(verb, filter.state)
    return filter


def change(verb: str, did: Sequence[Any], to: object) -> tuple[dict[str, Any], Any]:
    """Return what changed, before and after, for the audit record."""
    match verb:
        case "retry":
            return {"state": common(row["was"] for row in did)}, {"state": "queued"}
        case "cancel":
            states = ["queued" if row["result"] == "cancelled" else "running" for row in did]
            return {"state": common(states)}, {"state": common(row["result"] for row in did)}
        case "delete":
            return {"state": common(row["was"] for row in did)}, None
        case "reprioritize":
            return {"priority": common(row["was_priority"] for row in did)}, {"priority": to}
        case _:
            return {"queue": common(row["was_queue"] for row in did)}, {"queue": to}
