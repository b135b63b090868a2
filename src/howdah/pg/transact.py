"""One transaction around a handler, which the server ends when nobody drives it any more."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from howdah.errors import TransactionLost
from howdah.pg.pool import END_IDLE, is_closed
from howdah.pg.watch import Asking
from howdah.store import Transaction

Body = Callable[[Transaction], Awaitable[bytes | None]]
Finish = Callable[[Any, bytes | None], Awaitable[str | None]]
"""Does what is left to do; or returns it, as a statement without parameters that travels with the commit."""


async def transact(pool: asyncpg.Pool, idle: float, body: Body, finish: Finish) -> None:
    """Run ``body``, then ``finish(conn, result)`` as its last statement, and commit.

    A process frozen in here must not hold its locks for ever: the server ends a transaction that is idle for
    ``idle`` seconds. A handler that only does other things for long is kept alive.
    """
    closed = False
    try:
        async with pool.acquire() as conn:
            try:
                await _within(conn, idle, body, finish)
            except BaseException:
                closed = is_closed(conn)
                raise
    except asyncpg.InterfaceError:
        if not closed:
            raise
        raise TransactionLost(
            f"the server ended the transaction: its connection broke, or nothing was done in it for {idle:g} s"
            " while the event loop was blocked"
        ) from None


async def _within(conn: Any, idle: float, body: Body, finish: Finish) -> None:
    direct = hasattr(conn, "end_idle_after")
    asking: Asking = conn.asking if direct else Asking()
    if direct:
        await conn.end_idle_after(idle)
    around = conn.transaction()
    await around.start()
    last: str | None = None
    try:
        if not direct:  # behind a pooler the session is somebody else's the next moment
            await conn.execute(END_IDLE, str(int(idle * 1000)), True)
        transaction = Transaction(conn, asking)
        alive = KeepAlive(transaction, idle / 3)
        asking.end()
        try:
            result = await body(transaction)
        finally:
            await alive.stop()
            asking.begin()
        async with transaction.use():
            last = await finish(conn, result)
            if last:
                await conn.execute(f"{last}; commit")
    except BaseException:
        if last and is_closed(conn):
            raise  # nobody knows whether it was committed
        await around.rollback()
        raise
    if last:
        _is_over(around)
    else:
        await around.commit()


def _is_over(transaction: Any) -> None:
    """Tell asyncpg that a transaction is committed, or it takes the next one for a savepoint within it."""
    transaction._connection._top_xact = None


class KeepAlive:
    """Shows the server now and then that somebody drives a transaction; costs a timer while nobody needs it."""

    def __init__(self, transaction: Transaction, every: float) -> None:
        self._transaction = transaction
        self._every = every
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(every, self._start)
        self._due = self._loop.time() + every
        self._task: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """It is no longer needed. Waits for a statement of its own: to cancel that would abort the transaction."""
        self._timer.cancel()
        self._look()
        if self._task:
            async with self._transaction.use():
                self._task.cancel()

    def _start(self) -> None:
        self._look()
        self._task = self._loop.create_task(self._run())

    def _look(self) -> None:
        """Find out whether the event loop was blocked for so long that the server ended the transaction."""
        if self._loop.time() - self._due >= 1.9 * self._every:
            self._transaction.blocked = True
        self._due = math.inf  # a statement may take as long as it likes

    async def _run(self) -> None:
        try:
            while True:
                await self._transaction.execute("select 1")
                self._due = self._loop.time() + self._every
                await asyncio.sleep(self._every)
                self._look()
        except Exception:
            return  # the handler will hear of it at its own next statement
