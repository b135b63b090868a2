"""Pooled connections whose driver errors are raised as Howdah's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import asyncpg

from howdah.errors import DatabaseUnreachable
from howdah.postgres.database import BROKEN, FULL, Database, full, hide_password


class Acquired:
    """``async with Acquired(pool, database, "enqueueing") as conn``: raises :class:`DatabaseUnreachable` or
    :class:`DatabaseFull` instead of errors of the driver.
    """

    def __init__(self, pool: Callable[[], Any], database: Database, doing: str) -> None:
        self._open = pool
        self._database = database
        self._doing = doing
        self._holder: Any = None

    async def __aenter__(self) -> Any:
        try:
            self._holder = (await self._open()).acquire()
            return await self._holder.__aenter__()
        except FULL as error:
            raise full(self._database.dsn, error) from error
        except BROKEN as error:
            raise DatabaseUnreachable(f"cannot reach {hide_password(self._database.dsn)}: {error}") from error

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        await self._holder.__aexit__(kind, error, trace)
        if isinstance(error, FULL):
            raise full(self._database.dsn, error) from error
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            raise DatabaseUnreachable(
                f"{hide_password(self._database.dsn)} takes no writes, nothing happened: {error}; it is a standby, or"
                " default_transaction_read_only is on"
            ) from error
        if isinstance(error, BROKEN):
            raise DatabaseUnreachable(
                f"lost {hide_password(self._database.dsn)} while {self._doing}, it may or may not have happened:"
                f" {error}"
            ) from error
