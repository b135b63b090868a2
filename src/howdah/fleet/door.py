"""Door: who may do what. Tokens open it by their scopes, a worker's credential for that worker only."""

from __future__ import annotations

import hmac
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import msgspec

from howdah.fleet.refusal import Refused, unknown
from howdah.fleet.tokens import fingerprint, is_token
from howdah.pg import sql
from howdah.pg.database import Database, Session

Needs = Literal["nothing", "enqueue", "work", "read", "admin", "node", "node or admin"]
FRESH = 2.0
"""Seconds what is known of a token or a worker is believed: a revoked one is refused after at most this."""
MOST_KNOWN = 10_000
MOST_WAITING = 128
"""Claims one worker may have open at once."""


class RemoteNode(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that speaks with us."""

    id: int
    name: str
    queues: Sequence[str] | None
    kinds: Sequence[str]
    tables: Sequence[str]
    labels: Sequence[str]
    slots: int
    credential: bytes | None
    leaving: bool
    state: str
    gone: bool
    barred: bool
    """Whether the token it registered with was revoked, or has expired."""


class Caller(NamedTuple):
    """Whoever asks."""

    name: str
    """For the rate limit; says nothing of the token."""
    scopes: frozenset[str]
    queues: Sequence[str] | None
    node: RemoteNode | None
    token: int | None = None
    """The id of the token."""
    title: str = "everybody"
    """Its name, for people."""

    def may(self, scope: str) -> bool:
        """Whether a scope is among theirs."""
        return scope in self.scopes or "admin" in self.scopes

    def sees(self, queue: str) -> bool:
        """Whether a queue, with or without labels, is among theirs."""
        return self.queues is None or queue in self.queues or queue.split("+")[0] in self.queues


EVERYBODY = Caller("everybody", frozenset({"admin"}), None, None)


class Door:
    """Opens, or says why not."""

    def __init__(self, database: Database, session: Session, *, guarded: bool, rate: float) -> None:
        self._session = session
        self._sql = sql.load("howdah.fleet", schema=database.schema)
        self._guarded = guarded
        self._rate = rate
        self._tokens: _Known = _Known()
        self._nodes: _Known = _Known()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._waiting: Counter[int] = Counter()

    async def admit(self, needs: Needs, header: str | None, node_id: int | None) -> Caller:
        """The caller, or :class:`Refused`."""
        if needs == "nothing":
            return EVERYBODY
        token = _bearer(header)
        if token is None and self._guarded:
            raise Refused(401, "UNAUTHORIZED", "send a token: `Authorization: Bearer hwd_…`", headers=CHALLENGE)
        if needs.startswith("node") and node_id is not None and (token is None or is_token(token, "node")):
            caller = await self._as_node(token, node_id)
        else:
            caller = EVERYBODY if token is None else await self.token(token)
        self._slow_down(caller)
        wanted = "admin" if needs in ("node", "node or admin") else needs
        if caller.node is None and (needs == "node" or not caller.may(wanted)):
            missing = "the credential of this worker" if needs == "node" else f"scope {wanted}"
            raise Refused(403, "FORBIDDEN", f"this needs {missing}, which the token does not have")
        return caller

    async def node(self, id: int, *, fresh: bool = False) -> RemoteNode:
        """A worker by its id."""
        known = None if fresh else self._nodes.get(id)
        if known is None:
            row = await self._session.fetchrow(self._sql["node"], id)
            if row is None:
                raise unknown(f"worker {id}; register again")
            known = RemoteNode(**row)
            self._nodes.put(id, known)
        found: RemoteNode = known
        return found

    def forget(self, id: int) -> None:
        """Something about a worker changed."""
        self._nodes.drop(id)

    @contextmanager
    def waiting(self, id: int) -> Iterator[None]:
        """While a worker waits for jobs; too many at once are refused."""
        if self._waiting[id] >= MOST_WAITING:
            raise _too_many(f"{MOST_WAITING} claims of this worker are open already; wait for one to end", 1)
        self._waiting[id] += 1
        try:
            yield
        finally:
            self._waiting[id] -= 1
            if not self._waiting[id]:
                del self._waiting[id]

    def turned(self, id: int, state: str) -> None:
        """A worker is idle or busy now; the rest of what is known of it is as old as it was."""
        if (known := self._nodes.get(id)) is not None:
            self._nodes.change(id, msgspec.structs.replace(known, state=state))

    async def _as_node(self, token: str | None, id: int) -> Caller:
        node = await self.node(id)
        if node.gone or node.credential is None:
            raise unknown(f"worker {id} any more; register again")
        if token is not None and not hmac.compare_digest(fingerprint(token), node.credential):
            raise Refused(401, "UNAUTHORIZED", "the credential is not that of this worker", headers=CHALLENGE)
        if node.barred:
            raise Refused(401, "UNAUTHORIZED", "the token this worker came with is revoked", headers=CHALLENGE)
        return Caller(f"node {id}", frozenset(), node.queues, node)

    async def token(self, token: str) -> Caller:
        """Whoever has this token of the API, or :class:`Refused`."""
        if not is_token(token, "api"):
            raise Refused(401, "UNAUTHORIZED", "this is no token of ours; was it cut or mistyped?", headers=CHALLENGE)
        print_ = fingerprint(token)
        caller = self._tokens.get(print_)
        if caller is None:
            row = await self._session.fetchrow(self._sql["token_find"], print_)
            if row is None or not hmac.compare_digest(row["hash"], print_):
                raise Refused(401, "UNAUTHORIZED", "the token is unknown, expired or revoked", headers=CHALLENGE)
            scopes = frozenset(row["scopes"])
            caller = Caller(f"token {row['id']}", scopes, row["queues"], None, row["id"], row["name"])
            self._tokens.put(print_, caller)
        found: Caller = caller
        return found

    def _slow_down(self, caller: Caller) -> None:
        """So many requests a second, with a burst of as many more."""
        now = time.monotonic()
        left, at = self._buckets.pop(caller.name, (2 * self._rate, now))
        left = min(2 * self._rate, left + (now - at) * self._rate)
        self._buckets[caller.name] = (max(0.0, left - 1), now)
        if len(self._buckets) > MOST_KNOWN:
            self._buckets.popitem(last=False)
        if left < 1:
            wait = (1 - left) / self._rate
            raise _too_many(f"more than {self._rate:g} requests a second; try again in {wait:.1f} s", wait)


def _too_many(message: str, wait: float) -> Refused:
    return Refused(429, "TOO_MANY_REQUESTS", message, headers={"Retry-After": str(max(1, math.ceil(wait)))})


CHALLENGE = {"WWW-Authenticate": "Bearer"}


class _Known:
    """What was looked up lately."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Any, tuple[float, Any]] = OrderedDict()

    def get(self, key: Any) -> Any:
        at, value = self._entries.get(key, (0.0, None))
        return value if time.monotonic() - at < FRESH else None

    def put(self, key: Any, value: Any) -> None:
        self._entries.pop(key, None)
        self._entries[key] = (time.monotonic(), value)
        if len(self._entries) > MOST_KNOWN:
            self._entries.popitem(last=False)

    def change(self, key: Any, value: Any) -> None:
        self._entries[key] = (self._entries[key][0], value)

    def drop(self, key: Any) -> None:
        self._entries.pop(key, None)


def _bearer(header: str | None) -> str | None:
    if header is None:
        return None
    kind, _, token = header.partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise Refused(401, "UNAUTHORIZED", "send the token as `Authorization: Bearer …`", headers=CHALLENGE)
    return token.strip()
