"""Tells errors of the server and of the connection to it from errors of the handler whose transaction they end.

A handler must not pay with an attempt for a full disk, a restart or a lost connection. What it raises by itself, or
gets from another connection of its own, stays its error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import asyncpg
from asyncpg import exceptions

from howdah.errors import TransactionLost
from howdah.pg.pool import is_closed
from howdah.pg.transact import Body, Finish, transact
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
"""Errors that say something about the server or the connection, and nothing about the handler."""
CLOSED = (*OUTAGES, TransactionLost, asyncpg.InterfaceError, OSError)
"""The same, of a connection that is closed."""
MOST_LINKS = 100
"""Errors looked at in the chain of causes of one."""


async def transact_uncharged(pool: asyncpg.Pool, idle: float, body: Body, finish: Finish) -> None:
    """Run :func:`transact`; raises :class:`Interrupted` if the server or the connection broke it off."""
    tx: Transaction | None = None
    raised: BaseException | None = None
    closed = False

    async def begin(transaction: Transaction) -> bytes | None:
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
            raise Interrupted(error) from error  # its handler was not called
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
    raise raised  # not what the rollback raised, which only found the connection closed


def _is_outage(raised: BaseException, failures: Sequence[BaseException], *, closed: bool) -> bool:
    """Whether a handler raised this because of an outage that it met on the connection of its transaction."""
    kinds = CLOSED if closed else OUTAGES
    if closed and isinstance(raised, kinds) and not isinstance(raised, OSError):
        return True  # a handler may use the connection without its transaction
    return any(isinstance(error, kinds) for error in _chain(raised) if any(error is each for each in failures))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, the errors it was raised from or while handling, and those in a group."""
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
