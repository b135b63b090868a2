"""The transaction around a handler, with an idle timeout enforced by the server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

import asyncpg
from asyncpg import exceptions

from howdah.errors import TransactionLost
from howdah.postgres.pool import END_IDLE, PendingReply, is_closed
from howdah.store import Interrupted, Transaction

OUTAGES: tuple[type[BaseException], ...] = (
    exceptions.PostgresConnectionError,
    exceptions.AdminShutdownError,
    exceptions.CrashShutdownError,
    exceptions.CannotConnectNowError,
    exceptions.DiskFullError,
    exceptions.OutOfMemoryError,
    exceptions.TooManyConnectionsError,
    exceptions.PostgresIOError,
    exceptions.ReadOnlySQLTransactionError,
)
"""Errors of the server or the connection, not of the handler."""
CLOSED = (*OUTAGES, TransactionLost, asyncpg.InterfaceError, OSError)
"""Errors of the server or the connection when the connection is closed."""
MOST_LINKS = 100
"""Errors examined in one chain of causes."""


T = TypeVar("T")


async def transact_uncharged(
    pool: asyncpg.Pool,
    idle: float,
    body: Callable[[Transaction], Awaitable[T]],
    finish: Callable[[Any, T], Awaitable[str | None]],
) -> None:
    """Run :func:`transact`; raise :class:`Interrupted` if the server or the connection failed.

    A handler is not charged an attempt for a full disk, a restart or a lost connection. An error that it raises
    itself, or gets from another connection of its own, stays its error.
    """
    tx: Transaction | None = None
    raised: BaseException | None = None
    closed = False

    async def begin(transaction: Transaction) -> T:
        nonlocal tx, raised, closed
        tx = transaction
        try:
            return await body(transaction)
        except BaseException as error:
            raised, closed = error, is_closed(transaction.connection)
            raise

    try:
        await transact(pool, idle, begin, finish)
    except Exception as error:
        if tx is None:
            raise Interrupted(error) from error  # the handler was not called
        if tx.blocked:
            raise
        if raised is None:
            if isinstance(error, (*OUTAGES, TransactionLost, OSError)):
                raise Interrupted(error) from error
            raise
        if _is_outage(raised, tx.failures, closed=closed):
            raise Interrupted(error) from error
        if error is raised:
            raise
    else:
        return
    raise raised  # not the error of the rollback on the closed connection


def _is_outage(raised: BaseException, failures: Sequence[BaseException], *, closed: bool) -> bool:
    """Return whether a handler raised this because of an outage of its transaction's connection."""
    kinds = CLOSED if closed else OUTAGES
    if closed and isinstance(raised, kinds) and not isinstance(raised, OSError):
        return True  # a handler may use the connection without its transaction
    return any(isinstance(error, kinds) for error in _chain(raised) if any(error is each for each in failures))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes and contexts, and the members of groups."""
    waiting: list[Any] = [error]
    seen: set[int] = set()
    while waiting and len(seen) < MOST_LINKS:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


async def transact(
    pool: asyncpg.Pool,
    idle: float,
    body: Callable[[Transaction], Awaitable[T]],
    finish: Callable[[Any, T], Awaitable[str | None]],
) -> None:
    """Run ``body``, then ``finish(conn, result)`` as its last statement, and commit.

    ``finish`` records the completion, or returns it as a statement without parameters to be sent together with COMMIT.

    The server ends a transaction that is idle for ``idle`` seconds, so that a frozen process does not hold its locks
    for ever. While a handler does other work, keep-alive statements prevent that.
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


async def _within(
    conn: Any,
    idle: float,
    body: Callable[[Transaction], Awaitable[T]],
    finish: Callable[[Any, T], Awaitable[str | None]],
) -> None:
    direct = hasattr(conn, "end_idle_after")
    pending: PendingReply = conn.pending_reply if direct else PendingReply()
    if direct:
        await conn.end_idle_after(idle)
    around = conn.transaction()
    await around.start()
    last: str | None = None
    try:
        if not direct:  # behind a pooler the session is shared: set it for this transaction only
            await conn.execute(END_IDLE, str(int(idle * 1000)), True)
        transaction = Transaction(conn, pending)
        alive = KeepAlive(transaction, idle / 3)
        pending.end()
        try:
            result = await body(transaction)
        finally:
            await alive.stop()
            pending.begin()
        async with transaction.use():
            last = await finish(conn, result)
            if last:
                await conn.execute(f"{last}; commit")
    except BaseException:
        if last and is_closed(conn):
            raise  # unknown whether it was committed
        await around.rollback()
        raise
    if last:
        _mark_committed(around)
    else:
        await around.commit()


def _mark_committed(transaction: Any) -> None:
    """Mark a transaction as committed in asyncpg, which would otherwise open the next one as a savepoint."""
    transaction._connection._top_xact = None


class KeepAlive:
    """Sends keep-alive statements in an idle transaction; costs one timer for short handlers."""

    def __init__(self, transaction: Transaction, every: float) -> None:
        self._transaction = transaction
        self._every = every
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(every, self._start)
        self._due = self._loop.time() + every
        self._task: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """Stop. Waits for a running keep-alive statement, since cancelling it would abort the transaction."""
        self._timer.cancel()
        self._check_blocked()
        if self._task:
            async with self._transaction.use():
                self._task.cancel()

    def _start(self) -> None:
        self._check_blocked()
        self._task = self._loop.create_task(self._run())

    def _check_blocked(self) -> None:
        """Note whether the event loop was blocked for so long that the server ended the transaction."""
        if self._loop.time() - self._due >= 1.9 * self._every:
            self._transaction.blocked = True
        self._due = math.inf  # statements have no timeout

    async def _run(self) -> None:
        try:
            while True:
                await self._transaction.execute("select 1")
                self._due = self._loop.time() + self._every
                await asyncio.sleep(self._every)
                self._check_blocked()
        except Exception:
            return  # the handler gets the error at its next statement
