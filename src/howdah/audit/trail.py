"""Trail: add to the audit, and read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from howdah.audit.by import actor, plain
from howdah.errors import ConfigError
from howdah.pg import sql

MOST_IDS = 1000
LARGEST = 4000
"""Bytes of what it was before, and of what it is after."""
LARGEST_PAGE = 1000
PATIENCE = 5.0
NEWEST = 2**63 - 1
WITHIN = "select set_config('statement_timeout', $1, true), set_config('enable_bitmapscan', 'on', true)"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One act, as it was recorded."""

    id: int
    at: datetime
    who: str
    via: str
    """cli, dashboard, api or code."""
    address: str | None
    verb: str
    thing: str
    """job, queue, schedule, node, consumer, table, token or log."""
    ids: Sequence[str]
    """Which ones: at most a thousand."""
    filter: Any
    """How they were chosen, if not by name."""
    before: Any
    after: Any
    count: int
    """How many things it changed."""


class Trail:
    """The audit of one schema, through connections of others."""

    def __init__(self, schema: str) -> None:
        self._sql = sql.load("howdah.audit", schema=schema)

    async def record(
        self,
        conn: Any,
        verb: str,
        thing: str,
        ids: Sequence[object],
        *,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
        filter: Mapping[str, Any] | None = None,
        count: int | None = None,
    ) -> None:
        """Add an entry, in the transaction of the act it tells of; who acts is known by :func:`acting_as`."""
        by = actor()
        await conn.execute(
            self._sql["record"],
            by.who,
            by.via,
            by.address,
            verb,
            thing,
            [plain(str(id))[:300] for id in ids[:MOST_IDS]],
            _encode(filter),
            _encode(before),
            _encode(after),
            len(ids) if count is None else count,
        )

    async def list(
        self,
        conn: Any,
        *,
        who: str | None = None,
        via: str | None = None,
        verb: str | None = None,
        thing: str | None = None,
        id: object = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[Entry]:
        """Entries, newest first, below ``before``: pass the last id of a page to get the next one."""
        if not 1 <= limit <= LARGEST_PAGE:
            raise ConfigError(f"limit must be from 1 to {LARGEST_PAGE}, got {limit!r}; ask for the next page instead")
        for name, moment in (("since", since), ("until", until)):
            if moment is not None and moment.tzinfo is None:
                raise ConfigError(f"{name} {moment.isoformat()} has no time zone; add one")
        scope = (who, via, verb, thing, since, until, NEWEST if before is None else before, limit)
        async with conn.transaction(readonly=True):
            await conn.execute(WITHIN, str(int(PATIENCE * 1000)))
            if id is None:
                rows = await conn.fetch(self._sql["list"], *scope)
            else:
                rows = await conn.fetch(self._sql["list_of"], *scope, str(id))
        return [_entry(row) for row in rows]


def common(values: Iterable[Any]) -> Any:
    """The value all have, or how many have which.

    >>> common(["failed", "failed"]), common(["failed", "cancelled", "failed"])
    ('failed', {'failed': 2, 'cancelled': 1})
    """
    counts = Counter(values)
    return next(iter(counts)) if len(counts) == 1 else {str(value): n for value, n in counts.most_common(50)}


def _entry(row: Mapping[str, Any]) -> Entry:
    facts = dict(row)
    for name in ("filter", "before", "after"):
        facts[name] = None if facts[name] is None else msgspec.json.decode(facts[name])
    return Entry(**facts)


def _encode(facts: Mapping[str, Any] | None) -> str | None:
    if facts is None:
        return None
    said = msgspec.json.encode(facts, enc_hook=str)
    return (said if len(said) <= LARGEST else msgspec.json.encode({"bytes": len(said)})).decode()
