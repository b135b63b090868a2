"""Desk: where workers without a database get jobs of our own queue, and say how they ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from howdah.fleet.belief import Belief
from howdah.fleet.line import Line
from howdah.fleet.sessions import Sessions
from howdah.job import Job
from howdah.jobs.holds import Holds
from howdah.jobs.shared import Shared, channel
from howdah.jobs.store import JobStore
from howdah.journal import Run, Said
from howdah.outcome import Ack, Outcome
from howdah.pg import sql
from howdah.pg.database import Database, Session
from howdah.pg.listen import Listener
from howdah.redact import told_in
from howdah.secret import marks

Key = tuple[int, Any]
Scope = tuple[frozenset[str], frozenset[str] | None, frozenset[str]]
"""Kinds, queues and labels: what makes workers stand in the same line."""
FORGET = 300.0
"""Seconds after which a line nobody stood in is closed."""
ACKS = 4
"""Connections for outcomes at most: PostgreSQL flushes commits that come together at once."""
LOOK_FOR_HOLDS = 1.0
BEATS = 2
"""Connections for heartbeats, of their own: outcomes that wait for a lock must not hold them up."""


class JobDesk:
    """All lines, over a few connections."""

    def __init__(self, database: Database, pool: Any, *, lease: float, poll: float, notify: bool) -> None:
        self._database = database
        self._pool = pool
        self._lease = lease
        self._poll = poll
        self._sql = sql.load("howdah.fleet", schema=database.schema)
        self._listener = Listener(database, channel(database.schema), self._heard) if notify else None
        self._shared = Shared(
            Session(database, "claim", on_connect=self._forget), Sessions(database, "ack", ACKS), self._listener
        )
        self._beats = Sessions(database, "heartbeat", BEATS)
        self._lines: dict[Scope, Line] = {}
        self._closing = False
        self._holds = Holds(self._shared.acks, sql.load("howdah.jobs", schema=database.schema))
        self._held: frozenset[str] = frozenset()
        self._any = self._store([], None, frozenset())  # for outcomes, which need no line
        self.belief = Belief(database, self._shared.acks)

    async def listen(self, stop: asyncio.Event) -> None:
        """Hear wake-ups until ``stop``."""
        if self._listener:
            await self._listener.run(stop)
        else:
            await stop.wait()

    async def claim(
        self,
        node: int,
        scope: tuple[Sequence[str], Sequence[str] | None, Sequence[str]],
        *,
        most: int,
        room: Mapping[str, int],
        wait: float,
    ) -> list[Job]:
        """Jobs for a node of this scope: kinds, queues, labels."""
        until = time.monotonic() + wait
        while True:
            held = self._held
            jobs = await self._claim(node, scope, most=most, room=room, wait=max(0.0, until - time.monotonic()))
            if jobs or held == self._held or time.monotonic() >= until:
                return jobs

    async def _claim(
        self,
        node: int,
        scope: tuple[Sequence[str], Sequence[str] | None, Sequence[str]],
        *,
        most: int,
        room: Mapping[str, int],
        wait: float,
    ) -> list[Job]:
        kinds, queues, labels = scope
        allowed = frozenset(kinds) - self._held
        if self._closing:
            return []
        if not allowed:
            await asyncio.sleep(min(wait, LOOK_FOR_HOLDS))
            return []
        key: Scope = (allowed, None if queues is None else frozenset(queues), frozenset(labels))
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(
                self._store(sorted(allowed), queues, key[2]), lambda: not allowed & self._held
            )
        return await line.claim(node, most, room, wait)

    def turn_away(self, node: int | None = None) -> None:
        """Let a node that waits go with nothing; without one everybody, for good: this control plane ends."""
        self._closing = self._closing or node is None
        for line in self._lines.values():
            line.turn_away(node)

    async def ack(self, node: int, acks: Sequence[Ack], finished: Sequence[int]) -> list[Ack]:
        """Record how attempts ended."""
        own = await self.belief.own(node, acks)
        accepted = await self._any.ack(own, finished, node=node)
        return accepted if len(accepted) == len(own) else accepted + await self.belief.retried(node, own, accepted)

    async def release(self, node: int, tokens: Sequence[int]) -> int:
        """Hand back what is left of leases."""
        return await self._any.release(tokens, node=node)

    async def release_jobs(self, node: int, keys: Sequence[Key]) -> int:
        """Release single jobs of a node. A lease of which nothing else is left keeps its place in the queue."""
        if not keys:
            return 0
        tokens, ids = [token for token, _ in keys], [id for _, id in keys]
        rows = await self._shared.acks.fetch(self._sql["whole"], node, tokens, ids)
        whole = [row["token"] for row in rows]
        released = await self.release(node, whole) if whole else 0
        jobs = [Job(id, "", "", 1, 2, token, b"") for token, id in keys if token not in whole]
        accepted = await self.ack(node, [Ack(job, Outcome.RELEASED, 0) for job in jobs], ())
        return released + sum(ack.outcome in (Outcome.RELEASED, Outcome.CANCELLED) for ack in accepted)

    async def say(self, node: int, job: Job, said: Said) -> None:
        """Keep what a running job says."""
        await self._any.say(job, said, node=node)

    async def told(self, jobs: Sequence[Any]) -> dict[Any, tuple[str, ...]]:
        """What workers were told in confidence, by job: texts about it must not show it."""
        ids = [id for id in jobs if isinstance(id, int)]
        rows = await self._shared.acks.fetch(self._sql["secrets"], ids) if ids else []
        return {row["id"]: told_in(msgspec.json.decode(row["args"]), marks(row["meta"])) for row in rows}

    async def note_run(self, node: int, job: Job, run: Run) -> None:
        """Keep the record of a run."""
        await self._any.note_run(job, run, node=node)

    async def heartbeat(self, node: int, tokens: Sequence[int]) -> tuple[set[int], list[int]]:
        """Renew leases; the tokens that are still the node's, and the jobs somebody wants cancelled."""
        if not tokens:
            return set(), []
        row = await self._beats.fetchrow(self._sql["heartbeat"], node, list(tokens), self._lease)
        return set(row["kept"]), list(row["cancel"])

    async def look(self) -> None:
        """See which kinds the fleet leaves alone now, and close lines nobody stands in."""
        await self._holds.look()
        if self._holds.held != self._held:
            self._held = self._holds.held
            for line in self._lines.values():
                line.turn_away()  # they stand in another line now
        old = time.monotonic() - FORGET
        for key in [key for key, line in self._lines.items() if line.idle and line.used < old]:
            await self._lines.pop(key).close()

    async def hold(self, kind: str, seconds: float, reason: str | None) -> None:
        """Leave a kind alone for a while, everywhere."""
        await self._holds.put(kind, seconds, reason)
        await self.look()

    async def reset(self) -> tuple[int, int, int]:
        """Take back expired leases."""
        return await self._any.reset()

    async def close(self) -> None:
        """Close the connections."""
        self.turn_away()
        await asyncio.gather(*(line.close() for line in self._lines.values()))
        await self._any.close()
        await self._shared.claims.close()
        await self._shared.acks.close()
        await self._beats.close()

    def _store(self, kinds: Sequence[str], queues: Sequence[str] | None, labels: frozenset[str]) -> JobStore:
        return JobStore(
            self._database,
            0,
            kinds=kinds,
            queues=queues,
            lease=self._lease,
            poll=self._poll,
            notify=False,
            pool=self._pool,
            labels=labels,
            shared=self._shared,
        )

    def _heard(self, _queue: str | None) -> None:
        for line in self._lines.values():
            line.store.wake()

    def _forget(self) -> None:
        for line in self._lines.values():
            line.store.forget()
