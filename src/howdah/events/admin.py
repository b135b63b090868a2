"""Administration of the event log and its consumers, for the command line and the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from howdah.audit import AuditTrail
from howdah.errors import ConfigError, HowdahError
from howdah.events.parked import ParkedRow
from howdah.events.read import Frontier
from howdah.postgres import sql
from howdah.postgres.database import Acquired, Database

To = Literal["beginning", "end"] | int | datetime
DEAD = 30.0
"""Seconds without a heartbeat after which a node is shown as dead."""
LARGEST_PAGE = 1000
MOST_HOLDERS = 100
MOST_AUDITED = 200
"""Largest number of parked events' positions in one audit entry."""
READ_TIMEOUT = 5.0
"""Seconds a read of all consumers may take."""


class ConsumerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer, or one partition of it."""

    consumer: str
    part: int
    partitions: int
    only: Sequence[str] | None
    types: Sequence[str] | None
    state: str
    """running, retrying, halted, paused, waiting (for the leader), unassigned (not declared), silent, reshaping."""
    node: int | None
    node_name: str | None
    assigned_at: datetime | None
    position: int
    lag: int
    """Positions behind the head, including gaps, events out of its scope and open appends."""
    lag_seconds: float | None
    """Age of the first event it has not handled; ``None``: it has handled all."""
    rate: float
    """Events per second lately."""
    handled: int
    failures: int
    error_position: int | None
    error: str | None
    """The class of the error."""
    message: str | None
    traceback: str | None
    error_at: datetime | None
    parked: int
    paused_by: str | None
    upto: int | None
    """Position where it waits for the other partitions while their number changes."""
    updated_at: datetime

    @property
    def name(self) -> str:
        """The displayed name."""
        return self.consumer if self.partitions == 1 else f"{self.consumer}#{self.part}"


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """An open append."""

    above: int
    """It may still commit positions above this."""
    pid: int | None
    application: str | None
    role: str | None
    state: str | None
    age: float
    query: str | None
    prepared: str | None
    """The name of a prepared transaction, which has no process."""


class LogStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of the log."""

    head: int
    frontier: int
    exclusive: bool
    """True if appends are serialised."""
    holders: Sequence[Holder]
    """The open appends, the one that holds the frontier back first."""
    leader: int | None
    """The node that assigns consumers."""
    leader_name: str | None
    since: datetime | None
    system: int
    """The identifier of the PostgreSQL cluster."""
    timeline: int
    """Rises when a standby is promoted or a backup restored: events may be gone then, and their positions reused."""
    run: int | None
    """Changes with every start, crash and promotion of the server; ``None``: no node has looked at the log since."""


class LogAdmin:
    """Status, consumers, pause, resume, reset, skip, forget, switch; parked events. Changes are audited."""

    def __init__(self, database: Database, pool: Callable[[], Any]) -> None:
        self._database = database
        self._pool = pool
        self._sql = sql.load("howdah.events", schema=database.schema)
        self._trail = AuditTrail(database.schema)

    async def status(self) -> LogStatus:
        """Return the head, the frontier, and the transactions that hold the frontier back."""
        async with self._reach() as conn:
            frontier = await self._frontier(conn)
            holders = [Holder(**row) for row in await conn.fetch(self._sql["holders"], MOST_HOLDERS)]
            leading = await conn.fetchrow(self._sql["leader"])
            identity = await conn.fetchrow(self._sql["identity"])
        return LogStatus(head=frontier.head, frontier=frontier.safe, holders=holders, **leading, **identity)

    async def consumers(self, name: str | None = None) -> Sequence[ConsumerRow]:
        """Return every partition of every consumer: owner, position, lag, rate, state, last error."""
        async with self._reach() as conn:
            frontier = await self._frontier(conn)
            rows = await conn.fetch(self._sql["consumers"], frontier.head, DEAD, timeout=READ_TIMEOUT)
        found = [ConsumerRow(**row) for row in rows if name is None or row["consumer"] == name]
        if name is not None and not found:
            raise unknown(name)
        return found

    async def progress(self, name: str) -> Any:
        """Return the position of the partition furthest behind, and whether the consumer is paused or halted."""
        async with self._reach() as conn:
            return await self._read_progress(conn, name)

    async def pause(self, name: str, by: str | None = None) -> None:
        """Pause a consumer on every node; the running batch is finished."""
        async with self._reach() as conn, conn.transaction():
            was = await self._read_progress(conn, name)
            await conn.fetchrow(self._sql["pause"], name, by)
            before, after = {"paused": was["paused"]}, {"paused": True}
            await self._trail.record(conn, "pause", "consumer", [name], before=before, after=after)

    async def resume(self, name: str) -> bool:
        """Resume a paused or halted consumer at its position; return whether it was paused or halted."""
        async with self._reach() as conn, conn.transaction():
            was = await self._read_progress(conn, name)
            row = await conn.fetchrow(self._sql["resume"], name)
            if row["was"]:
                before, after = {"paused": was["paused"], "halted": was["halted"]}, {"paused": False, "halted": False}
                await self._trail.record(conn, "resume", "consumer", [name], before=before, after=after)
        return bool(row["was"])

    async def reset(self, name: str, to: To, *, part: int | None = None) -> int:
        """Move a consumer to a position, to the beginning, the end or a point in time; return the position.

        The events in between are handled again, or left out. A halted consumer resumes.
        """
        async with self._reach() as conn, conn.transaction():  # One transaction lies within one run of the server.
            position = await self._position(conn, to)
            was = await self._read_progress(conn, name, part)
            if not await conn.fetch(self._sql["reset"], name, part, position):
                raise unknown(name, part)
            before, after = {"position": was["position"]}, {"position": position, "part": part}
            await self._trail.record(conn, "reset", "consumer", [name], before=before, after=after)
        return position

    async def skip(self, name: str, *, part: int | None = None, events: Sequence[int] | None = None) -> Sequence[int]:
        """Move a consumer past the event it failed on; return the positions left out.

        ``events``: skip only one of these; the consumer may have been fixed meanwhile and fail on another one.
        """
        async with self._reach() as conn, conn.transaction():
            was = await self._read_progress(conn, name)
            skipped = sorted(row["position"] for row in await conn.fetch(self._sql["skip"], name, part, events))
            if not skipped and events is not None:
                those = ", ".join(map(str, events))
                raise ConfigError(f"consumer {name!r} no longer fails on event {those}, so nothing was skipped")
            if not skipped:
                raise ConfigError(f"consumer {name!r} failed on no event, so there is none to skip; `reset` moves it")
            before, after = {"position": was["position"], "error": was["error"]}, {"skipped": skipped, "part": part}
            await self._trail.record(conn, "skip", "consumer", [name], before=before, after=after)
        return skipped

    async def forget(self, name: str) -> None:
        """Delete a consumer that no live node declares, with its checkpoint."""
        async with self._reach() as conn, conn.transaction():
            was = await self._read_progress(conn, name)
            if await conn.fetchval(self._sql["forget"], name, DEAD) is None:
                raise ConfigError(
                    f"consumer {name!r} is still in the code of a live node; deploy without it, then forget it"
                )
            await self._trail.record(conn, "forget", "consumer", [name], before={"position": was["position"]})

    async def switch(self, old: str, new: str, statement: str) -> int:
        """Run ``statement`` if ``new`` has handled everything that ``old`` has, and pause ``old``: one commit.

        For a read model that was rebuilt beside the old one: the statement points readers to the new one. Return the
        position of ``new``.
        """
        async with self._reach() as conn, conn.transaction():
            at: dict[str, list[int]] = {}
            for row in await conn.fetch(self._sql["lock_checkpoints"], [old, new]):
                at.setdefault(row["consumer"], []).append(row["position"])
            for name in (old, new):
                if name not in at:
                    raise unknown(name)
            if min(at[new]) < max(at[old]):
                raise HowdahError(
                    f"consumer {new!r} is at {min(at[new])} and {old!r} already at {max(at[old])}; wait until it has"
                    " caught up, then switch"
                )
            await conn.execute(statement)
            await conn.fetchrow(self._sql["pause"], old, f"switch to {new}")
            after = {"to": new, "position": min(at[new])}
            await self._trail.record(conn, "switch", "consumer", [old], before={"position": max(at[old])}, after=after)
            return min(at[new])

    async def parked(self, name: str | None = None, *, after: int = 0, limit: int = 50) -> Sequence[ParkedRow]:
        """Return parked events after a position, oldest first."""
        if not 1 <= limit <= LARGEST_PAGE:
            raise ConfigError(f"limit must be from 1 to {LARGEST_PAGE}, got {limit!r}; ask for the next page instead")
        async with self._reach() as conn:
            rows = await conn.fetch(self._sql["parked"], name, after, limit)
        return [ParkedRow(**{**row, "data": msgspec.json.decode(row["data"] or b"null")}) for row in rows]

    async def retry_parked(self, name: str, positions: Sequence[int] | None = None) -> Sequence[int]:
        """Retry parked events, all or these; return which. Later events of their stream may be handled by then."""
        return await self._parked("retry_parked", name, positions)

    async def drop_parked(self, name: str, positions: Sequence[int] | None = None) -> Sequence[int]:
        """Delete parked events, all or these; return those deleted."""
        return await self._parked("drop_parked", name, positions)

    async def set_exclusive(self, exclusive: bool) -> None:
        """Serialise appends, so that positions are committed in order, or allow concurrent appends (the default)."""
        async with self._reach() as conn, conn.transaction():
            await conn.fetchval(self._sql["set_exclusive"], exclusive)
            await self._trail.record(conn, "set_exclusive", "log", [], after={"exclusive": exclusive}, count=1)

    async def _parked(self, verb: str, name: str, positions: Sequence[int] | None) -> Sequence[int]:
        async with self._reach() as conn, conn.transaction():
            await self._read_progress(conn, name)
            chosen = None if positions is None else list(positions)
            did = [row["position"] for row in await conn.fetch(self._sql[verb], name, chosen)]
            if did:
                after = {"positions": did[:MOST_AUDITED]}
                await self._trail.record(conn, verb, "consumer", [name], after=after, count=len(did))
        return did

    async def _read_progress(self, conn: Any, name: str, part: int | None = None) -> Any:
        """As :meth:`progress`, on this connection."""
        row = await conn.fetchrow(self._sql["consumer_progress"], name)
        if row is None:
            raise unknown(name, part)
        return row

    async def _position(self, conn: Any, to: To) -> int:
        frontier = await self._frontier(conn)
        if to == "beginning":
            return 0
        if to == "end":
            return frontier.safe
        if isinstance(to, datetime):
            if to.tzinfo is None:
                raise ConfigError(f"the time {to.isoformat()} has no time zone; add one")
            return int(await conn.fetchval(self._sql["position_at"], to, frontier.safe))
        if not isinstance(to, int) or isinstance(to, bool) or not 0 <= to <= frontier.safe:
            raise ConfigError(
                f"cannot reset to {to!r}; give 'beginning', 'end', a time, or a position from 0 to {frontier.safe}"
            )
        return to

    async def _frontier(self, conn: Any) -> Frontier:
        return Frontier(*await conn.fetchrow(self._sql["frontier"], 0))

    def _reach(self) -> Acquired:
        return Acquired(self._pool, self._database, "acting on the log")


def unknown(name: str, part: int | None = None) -> ConfigError:
    """Return the error for a consumer, or a partition of it, that does not exist."""
    which = f"consumer {name!r}" if part is None else f"part {part} of consumer {name!r}"
    return ConfigError(f"there is no {which}; `howdah consumers` lists them")
