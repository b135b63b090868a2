"""Two transactions that overlap: the first stays open until it is known whether the second waits for it."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import asyncpg
import psycopg
from psycopg import sql as names

from howdah.postgres.database import Database
from kit.node import EVENTUALLY_TIMEOUT
from kit.roles import worker

numbers = itertools.count()

Operation = Callable[[Any], Awaitable[Any]]
"""Does something through a connection, and returns what it was told."""

CONFLICTS = {
    "key share": {"update"},
    "no key update": {"no key update", "update"},
    "update": {"key share", "no key update", "update"},
}
"""Which locks on one row exclude which; a row about to be inserted is one that is updated."""


class ThreeConnections(NamedTuple):
    """A connection that observes, and the two that interleave."""

    watch: Any
    one: Any
    other: Any


def fresh_database(server: Any, template: str) -> Iterator[Database]:
    """A fresh, migrated database, without a pooler in between."""
    name = f"howdah_meet_{os.getpid()}_{next(numbers)}"
    with psycopg.connect(server.dsn, autocommit=True) as conn:
        create = names.SQL("create database {} template {}")
        conn.execute(create.format(names.Identifier(name), names.Identifier(template)))
        yield Database(server.dsn_for(name))
        conn.execute(names.SQL("drop database if exists {} with (force)").format(names.Identifier(name)))


@asynccontextmanager
async def three_connections(database: Database) -> AsyncIterator[ThreeConnections]:
    ours = worker(database)
    conns = ThreeConnections(await database.connect("watch"), await ours.connect("one"), await ours.connect("other"))
    try:
        yield conns
    finally:
        for conn in conns:
            conn.terminate()


@dataclass(frozen=True, kw_only=True)
class Form:
    """One way to do one of the acts, and the locks it takes on what others may want, too."""

    act: str
    name: str
    do: Callable[[Any, Any], Awaitable[Any]]
    """Takes the prepared rows and a connection."""
    locks: Mapping[str, str] = field(default_factory=dict)
    skips: Collection[str] | bool = False
    """What it passes by when others hold it, instead of waiting; true: everything it locks."""

    def __str__(self) -> str:
        return f"{self.act} {self.name}".strip()

    def passes_by(self, first: Form) -> bool:
        """Whether it passes by something that ``first`` holds."""
        return any(self._skips(thing) for thing in self._held_by(first))

    def waits_for(self, first: Form) -> bool:
        """Whether it has to wait for ``first``."""
        return any(not self._skips(thing) for thing in self._held_by(first))

    def _skips(self, thing: str) -> bool:
        return self.skips if isinstance(self.skips, bool) else thing in self.skips

    def _held_by(self, first: Form) -> list[str]:
        return [thing for thing, mode in self.locks.items() if first.locks.get(thing) in CONFLICTS[mode]]


@dataclass(frozen=True)
class InterleavingResult:
    """Results of the two operations, and whether the second had to wait."""

    first: Any
    second: Any
    waited: bool


async def result_of(doing: Awaitable[Any]) -> Any:
    """Return the result, or the name of the error; a deadlock or a missing right is raised."""
    try:
        return await doing
    except (asyncpg.DeadlockDetectedError, asyncpg.InsufficientPrivilegeError):
        raise
    except asyncpg.PostgresError as error:
        return type(error).__name__


async def meet(three: ThreeConnections, first: Operation, second: Operation, *, commit: bool) -> InterleavingResult:
    """Let ``second`` run while what ``first`` did is neither committed nor undone."""
    opened = three.one.transaction()
    await opened.start()
    try:
        result = await first(three.one)
        running = asyncio.ensure_future(result_of(second(three.other)))
        waited = await _waits(three, running)
    except BaseException:
        await opened.rollback()
        raise
    await (opened.commit() if commit else opened.rollback())
    return InterleavingResult(result, await asyncio.wait_for(running, EVENTUALLY_TIMEOUT), waited)


async def _waits(three: ThreeConnections, running: asyncio.Future[Any]) -> bool:
    """Whether the second waits for the first, in the lock queue or beside it; it either does, or gets through."""
    pids = three.one.get_server_pid(), three.other.get_server_pid()
    until = asyncio.get_running_loop().time() + EVENTUALLY_TIMEOUT
    while not running.done():
        if await three.watch.fetchval(WAITS, *pids):
            return True
        if asyncio.get_running_loop().time() > until:
            raise AssertionError("the second neither waits for the first nor comes to an end")
        await asyncio.wait([running], timeout=0.002)
    return False


WAITS = """
select $1 = any(pg_blocking_pids($2))
    or exists (select from pg_stat_activity a where a.pid = $2 and a.wait_event = 'PgSleep')
"""
"""Whether $2 waits for $1; maintenance waits beside the lock queue, asleep, so that no session waits behind it."""


class Interleavings:
    """Runs pairs of operations on prepared rows and compares the result with serial execution.

    Prepared rows have a ``portrait`` of the tables, the same for two of them after the same operations, and name
    what is ``wrong``.
    """

    def __init__(self, three: ThreeConnections, lay: Callable[[Any], Awaitable[Any]]) -> None:
        self._three = three
        self._lay = lay
        self._known: dict[tuple[str, ...], Any] = {}

    async def hold(self, first: Form, second: Form, *, commit: bool) -> tuple[Any, InterleavingResult, Any]:
        """Interleave two operations and check them; returns the prepared rows, the results and the tables."""
        watch, case = self._three.watch, f"{first}, {'committed' if commit else 'rolled back'} while: {second}"
        orders = [(first, second), (second, first)] if commit else [(second,)]
        passed_by = second.passes_by(first)
        ends = [await self._in_turn(*order) for order in orders]
        next_time = [await self._in_turn(*orders[0], second)] if passed_by else []
        prepared = await self._lay(watch)
        met = await meet(
            self._three, lambda conn: first.do(prepared, conn), lambda conn: second.do(prepared, conn), commit=commit
        )
        assert met.waited == second.waits_for(first), f"{case}: did {'' if met.waited else 'not '}wait, {met}"
        after = left = await prepared.portrait(watch)
        wrong = await prepared.wrongs(watch)
        assert wrong == [], f"{case}: {wrong}, {met}"
        if passed_by and left not in ends:
            await result_of(second.do(prepared, watch))  # what was passed by is met the next time
            left, ends = await prepared.portrait(watch), ends + next_time
        assert left in ends, f"{case}: {met}, left {left}, and neither of {ends}"
        return prepared, met, after

    async def _in_turn(self, *forms: Form) -> Any:
        """What these acts leave behind, one after the other."""
        key = tuple(map(str, forms))
        if key not in self._known:
            prepared = await self._lay(self._three.watch)
            for form in forms:
                await result_of(form.do(prepared, self._three.watch))
            self._known[key] = await prepared.portrait(self._three.watch)
        return self._known[key]


async def switch_off(conn: Any, function: str, guard: str, instead: str = "") -> None:
    """Take a guard out of a function of the engine, to see what it is good for."""
    was = str(await conn.fetchval(DEFINITION, function))
    if guard not in was:
        raise AssertionError(f"howdah.{function} has no guard {guard!r}")
    await conn.execute(was.replace(guard, instead))


DEFINITION = """
select pg_get_functiondef(p.oid) from pg_proc p where p.pronamespace = 'howdah'::regnamespace and p.proname = $1
"""
