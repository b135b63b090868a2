"""Acts: what people do to jobs, by id or by filter, in small transactions that each keep their own record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

import asyncpg
import msgspec

from howdah.audit.trail import Trail, common
from howdah.errors import ConfigError
from howdah.handler import check_name
from howdah.job import State
from howdah.jobs.filter import ENDED, Filter
from howdah.jobs.look import Look
from howdah.jobs.rows import Said
from howdah.jobs.search import Search
from howdah.jobs.seen import Named, Seen, columns

Verb = Literal["retry", "cancel", "delete", "reprioritize", "move"]
CHUNK = 1000
"""Jobs acted on in one transaction."""
TRIES = 3
SUITS: dict[str, tuple[State, ...]] = {
    "retry": (State.FAILED, State.CANCELLED),
    "cancel": (State.QUEUED, State.RUNNING),
    "delete": (State.QUEUED, State.DONE, State.FAILED, State.CANCELLED),
    "reprioritize": (State.QUEUED,),
    "move": (State.QUEUED,),
}
REARRANGE = ("reprioritize", "move")
PAST = {
    "retry": "retried",
    "cancel": "cancelled",
    "delete": "deleted",
    "reprioritize": "reprioritized",
    "move": "moved",
}


class Acted(msgspec.Struct, frozen=True, kw_only=True):
    """How far an act on many jobs has come."""

    verb: str
    did: int = 0
    left: int = 0
    """Jobs that were left alone: they changed meanwhile."""
    next: int | None = None
    """Pass it as ``before`` to go on from here; ``None``: nothing is left."""
    chunk: Sequence[Said] = ()
    """What became of each job of the last transaction."""


class Acts:
    """Does it, and writes down who did it: one transaction."""

    def __init__(self, look: Look, search: Search, trail: Trail) -> None:
        self._look = look
        self._search = search
        self._trail = trail

    async def on(
        self, verb: Verb, jobs: Sequence[Named], to: str | int | None = None, *, state: State | str | None = None
    ) -> list[Said]:
        """Act on these jobs, a thousand in a transaction; says what became of each.

        A job that is no longer as it was seen, or not in ``state``, is left alone: ``changed``.
        """
        check(verb, to)
        check_state(verb, state)
        seen = [Seen.of(job, state) for job in jobs]
        said: list[Said] = []
        for start in range(0, len(seen), CHUNK):
            said += await self._try(verb, seen[start : start + CHUNK], to, None)
        return said

    async def on_all(
        self,
        verb: Verb,
        filter: Filter,
        *,
        to: str | int | None = None,
        before: int | None = None,
        limit: int | None = None,
        progress: Callable[[Acted], object] | None = None,
    ) -> Acted:
        """Act on every job that fits and exists now, newest first, each once: one that fails again is not met again."""
        check(verb, to)
        filter = suitable(verb, filter)
        async with self._look.read() as conn:
            newest = await conn.fetchval(self._look.sql["newest"])
        acted = Acted(verb=verb, next=newest + 1 if before is None else min(before, newest + 1))
        while acted.next is not None and (limit is None or acted.did + acted.left < limit):
            most = CHUNK if limit is None else min(CHUNK, limit - acted.did - acted.left)
            acted = await self._step(acted, filter, to, most)
            if progress:
                progress(acted)
        return acted

    async def _step(self, acted: Acted, filter: Filter, to: str | int | None, most: int) -> Acted:
        async with self._look.read() as conn:
            found = await self._search.find(conn, filter, before=acted.next, limit=most)
            ends: dict[int, datetime] = {}
            if filter.state in ENDED:  # in the snapshot of the search
                ends = {row["id"]: row["finished_at"] for row in await conn.fetch(self._look.sql["ended"], found.ids)}
        seen = [Seen(id, str(filter.state), ends.get(id)) for id in found.ids]
        said = await self._try(acted.verb, seen, to, filter) if seen else []
        did = sum(each.did for each in said)
        return Acted(
            verb=acted.verb,
            did=acted.did + did,
            left=acted.left + len(said) - did,
            next=found.next,
            chunk=said,
        )

    async def _try(self, verb: str, jobs: list[Seen], to: str | int | None, filter: Filter | None) -> list[Said]:
        for left in reversed(range(TRIES)):
            try:
                async with self._look.act() as conn:
                    return await self._once(conn, verb, jobs, to, filter)
            except asyncpg.DeadlockDetectedError:  # with another act that met the same jobs in another order
                if not left:
                    raise
        raise AssertionError

    async def _once(
        self, conn: Any, verb: str, jobs: list[Seen], to: str | int | None, filter: Filter | None
    ) -> list[Said]:
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
        rows = await conn.fetch(self._look.sql[verb], *values)
        said = [Said(id=row["id"], said=row["said"]) for row in rows]
        left = await self._left_alone(conn, other) if other else []
        did = [row for row, each in zip(rows, said, strict=True) if each.did]
        if did:
            before, after = change(verb, did, to)
            scope = filter.said if filter else None
            done = [row["id"] for row in did]
            await self._trail.record(conn, verb, "job", done, before=before, after=after, filter=scope)
        return said + left

    async def _left_alone(self, conn: Any, jobs: list[Seen]) -> list[Said]:
        """Answer for jobs that were seen in a state in which they cannot be rearranged."""
        rows = await conn.fetch(self._look.sql["states"], [job.id for job in jobs])
        now = {row["id"]: row["state"] for row in rows}
        return [Said(id=job.id, said=_why_left(job, now.get(job.id, ""))) for job in jobs]


def _waiting(jobs: list[Seen]) -> tuple[list[Seen], list[Seen]]:
    """Split jobs into those that were seen waiting, or were not looked at, and the others."""
    suited = [job for job in jobs if job.state in (None, State.QUEUED)]
    return suited, [job for job in jobs if job.state not in (None, State.QUEUED)]


def _why_left(job: Seen, state: str | None) -> str:
    if state == "":
        return "unknown"
    if state != job.state:
        return "changed"
    return "over" if state in ENDED else "running"


def check(verb: str, to: object) -> None:
    """Refuse an act that cannot be."""
    if verb not in SUITS:
        raise ConfigError(f"there is no act {verb!r}; use {', '.join(SUITS)}")
    if verb == "reprioritize":
        if not isinstance(to, int) or isinstance(to, bool) or not -100 <= to <= 100:
            raise ConfigError(f"priority must be from -100 to 100, got {to!r}")
    elif verb == "move":
        check_name("queue", to)
    elif to is not None:
        raise ConfigError(f"{verb} takes no value, got {to!r}; only reprioritize and move do")


def check_state(verb: str, state: State | str | None) -> None:
    """Refuse a state in which no job can be acted on so."""
    if state is not None and state not in SUITS[verb]:
        states = " and ".join(map(str, SUITS[verb]))
        raise ConfigError(f"only {states} jobs can be {PAST[verb]}, got state {str(state)!r}")


def suitable(verb: str, filter: Filter) -> Filter:
    """The filter with a state in which jobs can be acted on so."""
    if filter.state is None:
        if verb == "delete":
            states = " and ".join(map(str, SUITS[verb]))
            raise ConfigError(f"only {states} jobs can be {PAST[verb]}, got state none")
        return replace(filter, state=SUITS[verb][0])
    check_state(verb, filter.state)
    return filter


def change(verb: str, did: Sequence[Any], to: object) -> tuple[dict[str, Any], Any]:
    """What these jobs were before, and what they are after."""
    match verb:
        case "retry":
            return {"state": common(row["was"] for row in did)}, {"state": "queued"}
        case "cancel":
            states = ["queued" if row["said"] == "cancelled" else "running" for row in did]
            return {"state": common(states)}, {"state": common(row["said"] for row in did)}
        case "delete":
            return {"state": common(row["was"] for row in did)}, None
        case "reprioritize":
            return {"priority": common(row["was_priority"] for row in did)}, {"priority": to}
        case _:
            return {"queue": common(row["was_queue"] for row in did)}, {"queue": to}
