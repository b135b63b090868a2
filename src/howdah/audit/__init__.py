"""Audit log: actor, action, address and previous value. Written in the transaction of the action, never changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Literal

import msgspec

from howdah.errors import ConfigError
from howdah.postgres import sql

Via = Literal["cli", "dashboard", "api", "code"]
MAX_NAME = 200
"""Characters of a name or an address that are kept."""


class Actor(msgspec.Struct, frozen=True):
    """The user who acts, and the interface they use.

    >>> Actor("ada", "cli", "web-1")
    Actor(who='ada', via='cli', address='web-1')
    """

    who: str
    via: Via = "code"
    address: str | None = None
    """The machine of the user."""


CODE = Actor("code")
_acting: ContextVar[Actor] = ContextVar("howdah_acting", default=CODE)


@contextmanager
def acting_as(by: Actor) -> Iterator[None]:
    """Record changes made inside the block, in this task and those it starts, under this actor.

    >>> with acting_as(Actor("ada", "dashboard")):
    ...     actor().who
    'ada'
    >>> actor().who
    'code'
    """
    token = _acting.set(by)
    try:
        yield
    finally:
        _acting.reset(token)


def actor() -> Actor:
    """Return the current actor, with texts that fit the table."""
    by = _acting.get()
    return Actor(plain(by.who)[:MAX_NAME] or "unknown", by.via, plain(by.address)[:MAX_NAME] if by.address else None)


def plain(text: str) -> str:
    """Return a text without characters the server cannot store."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


MAX_IDS = 1000
MAX_VALUES = 4000
"""Largest size in bytes of the values before and after."""
LARGEST_PAGE = 1000
LIST_TIMEOUT = 5.0
"""Seconds that a list may take."""
NEWEST = 2**63 - 1
SET_LIST_TIMEOUT = "select set_config('statement_timeout', $1, true), set_config('enable_bitmapscan', 'on', true)"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded action."""

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
    """The filter, if not chosen by id."""
    before: Any
    after: Any
    count: int
    """Number of changed objects."""


class AuditTrail:
    """The audit log of one schema, through the caller's connections."""

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
        """Add an entry in the transaction of the action; :func:`acting_as` sets the actor."""
        by = actor()
        await conn.execute(
            self._sql["record"],
            by.who,
            by.via,
            by.address,
            verb,
            thing,
            [plain(str(id))[:300] for id in ids[:MAX_IDS]],
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
    ) -> Sequence[AuditEntry]:
        """Entries, newest first, below ``before``: pass the last id of a page to get the next one."""
        if not 1 <= limit <= LARGEST_PAGE:
            raise ConfigError(f"limit must be from 1 to {LARGEST_PAGE}, got {limit!r}; ask for the next page instead")
        for name, moment in (("since", since), ("until", until)):
            if moment is not None and moment.tzinfo is None:
                raise ConfigError(f"{name} {moment.isoformat()} has no time zone; add one")
        scope = (who, via, verb, thing, since, until, NEWEST if before is None else before, limit)
        async with conn.transaction(readonly=True):
            await conn.execute(SET_LIST_TIMEOUT, str(int(LIST_TIMEOUT * 1000)))
            if id is None:
                rows = await conn.fetch(self._sql["list"], *scope)
            else:
                rows = await conn.fetch(self._sql["list_of"], *scope, str(id))
        return [_entry(row) for row in rows]


def common(values: Iterable[Any]) -> Any:
    """Return the common value, or the count of each value.

    >>> common(["failed", "failed"]), common(["failed", "cancelled", "failed"])
    ('failed', {'failed': 2, 'cancelled': 1})
    """
    counts = Counter(values)
    return next(iter(counts)) if len(counts) == 1 else {str(value): n for value, n in counts.most_common(50)}


def _entry(row: Mapping[str, Any]) -> AuditEntry:
    facts = dict(row)
    for name in ("filter", "before", "after"):
        facts[name] = None if facts[name] is None else msgspec.json.decode(facts[name])
    return AuditEntry(**facts)


def _encode(facts: Mapping[str, Any] | None) -> str | None:
    if facts is None:
        return None
    encoded = msgspec.json.encode(facts, enc_hook=str)
    return (encoded if len(encoded) <= MAX_VALUES else msgspec.json.encode({"bytes": len(encoded)})).decode()
