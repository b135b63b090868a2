"""RowLeases: which worker holds which rows of a table. Kept in the database, so that every replica knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from howdah.job import Job
from howdah.pg import sql
from howdah.pg.database import Database, Session

Key = tuple[int, Any]
"""Token and id."""
MOST = 100


class RowLeases:
    """The leases on rows of one table that workers without a database hold. A token is one worker's, for ever."""

    def __init__(self, database: Database, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self._sql = sql.load("howdah.fleet", schema=database.schema)

    async def note(self, node: int, jobs: Sequence[Job]) -> None:
        """These rows are about to be given to a worker."""
        for token in {job.token for job in jobs}:
            ids = msgspec.json.encode([job.id for job in jobs if job.token == token])
            await self._session.fetch(self._sql["claim_rows"], token, node, self._name, ids)

    async def own(self, node: int, keys: Iterable[Key]) -> set[int]:
        """The tokens among these that are the worker's own."""
        return await self._tokens("own_rows", node, keys)

    async def renew(self, node: int, keys: Iterable[Key]) -> set[int]:
        """The worker speaks of these: the tokens among them that are its own."""
        return await self._tokens("heartbeat_rows", node, keys)

    async def held(self, node: int, tokens: Sequence[int] | None = None) -> list[Key]:
        """What a worker was given lately: all of it, or what it was given under these tokens."""
        return _keys(await self._session.fetch(self._sql["held_rows"], node, self._name, tokens))

    async def lose(self, seconds: float) -> list[Key]:
        """End leases nobody spoke of for so long; the rows they were for."""
        return _keys(await self._session.fetch(self._sql["lose_rows"], self._name, seconds, MOST))

    async def _tokens(self, verb: str, node: int, keys: Iterable[Key]) -> set[int]:
        tokens = list({token for token, _ in keys})
        if not tokens:
            return set()
        return {row["token"] for row in await self._session.fetch(self._sql[verb], node, tokens)}


def _keys(rows: Sequence[Any]) -> list[Key]:
    return [(row["token"], id) for row in rows for id in msgspec.json.decode(row["ids"])]
