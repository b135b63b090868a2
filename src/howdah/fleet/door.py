"""Door: who may do what. Tokens open it by their scopes, a worker's credential for that worker only."""

from __future__ import annotations

import hmac
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import msgspec

from howdah.fleet.buckets import MOST_KNOWN, Buckets
from howdah.fleet.refusal import Refused, too_many, unknown
from howdah.fleet.strangers import Strangers
from howdah.fleet.tokens import fingerprint, is_token
from howdah.pg import sql
from howdah.pg.database import Database, Session

Needs = Literal["nothing", "enqueue", "work", "read", "admin", "node", "node or admin"]
FRESH = 2.0
"""Seconds what is known of a token or a worker is believed: a revoked one is refused after at most this."""
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

    @property
    def who(self) -> str:
        """For the audit."""
        return self.name if self.token is None else f"{self.name} ({self.title})"

    def may(self, scope: str) -> bool:
        """Whether a scope is among theirs."""
        return scope in self.scopes or "admin" in self.scopes

    def sees(self, queue: str) -> bool:
        """Whether a queue, with or without labels, is among theirs."""
        return self.queues is None or queue in self.queues or queue.split("+")[0] in self.queues


EVERYBODY = Caller("everybody", frozenset({"admin"}), None, None)


class Door:
    """Opens, or says why not."""

    def __init__(self, database: Database, session: Session, *, guarded: bool, rate: float, refusals: float) -> None:
        self._session = session
        self._sql = sql.load("howdah.fleet", schema=database.schema)
        self.guarded = guarded
        """Whether a token is needed."""
        self._tokens: _Known = _Known()
        self._nodes: _Known = _Known()
        self._buckets = Buckets(rate, 2 * rate)
        self._strangers = Strangers(refusals)
        self._waiting: Counter[int] = Counter()

    async def check(self) -> None:
        """Raise unless tokens can be looked up."""
        if self.guarded:
            await self._session.fetchrow(self._sql["token_find"], b"")

    async def admit(self, needs: Needs, header: str | None, node_id: int | None, address: str) -> Caller:
        """The caller, or :class:`Refused`. ``address``: of the other end of the connection."""
        if needs == "nothing":
            return EVERYBODY
        try:
            caller = await self._caller(needs, header, node_id, address)
        except Refused:
            wait = self._strangers.count(address)
            # a worker must hear that it is not known any more, else it does not register again
            if wait and not _names_worker(header):
                raise too_many("too many requests without a good token came from this address", wait) from None
            raise
        self._slow_down(caller)
        wanted = "admin" if needs in ("node", "node or admin") else needs
        if caller.node is None and (needs == "node" or not caller.may(wanted)):
            missing = "the credential of this worker" if needs == "node" else f"scope {wanted}"
            raise Refused(403, "FORBIDDEN", f"this needs {missing}, which the token does not have")
        return caller

    async def _caller(self, needs: Needs, header: str | None, node_id: int | None, address: str) -> Caller:
        token = _bearer(header)
        if token is None and self.guarded:
            raise Refused(401, "UNAUTHORIZED", "send a token: `Authorization: Bearer hwd_…`", headers=CHALLENGE)
        if needs.startswith("node") and node_id is not None and (token is None or is_token(token, "node")):
            return await self._as_node(token, node_id, address)
        return EVERYBODY if token is None else await self.token(token, address)

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
            raise too_many(f"{MOST_WAITING} claims of this worker are open already; wait for one to end", 1)
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

    async def _as_node(self, token: str | None, id: int, address: str) -> Caller:
        if self._nodes.knew(id):
            node = await self.node(id)
        else:
            async with self._strangers.turn(address):
                node = await self.node(id)
        if node.gone or node.credential is None:
            raise unknown(f"worker {id} any more; register again")
        if token is not None and not hmac.compare_digest(fingerprint(token), node.credential):
            raise Refused(401, "UNAUTHORIZED", "the credential is not that of this worker", headers=CHALLENGE)
        if node.barred:
            raise Refused(401, "UNAUTHORIZED", "the token this worker came with is revoked", headers=CHALLENGE)
        return Caller(f"node {id}", frozenset(), node.queues, node)

    async def token(self, token: str, address: str = "") -> Caller:
        """Whoever has this token of the API, or :class:`Refused`."""
        if not is_token(token, "api"):
            raise Refused(401, "UNAUTHORIZED", "this is no token of ours; was it cut or mistyped?", headers=CHALLENGE)
        print_ = fingerprint(token)
        caller = self._tokens.get(print_)
        if caller is None:
            row = await self._look_up(print_, address)
            if row is None or not hmac.compare_digest(row["hash"], print_):
                raise Refused(401, "UNAUTHORIZED", "the token is unknown, expired or revoked", headers=CHALLENGE)
            scopes = frozenset(row["scopes"])
            caller = Caller(f"token {row['id']}", scopes, row["queues"], None, row["id"], row["name"])
            self._tokens.put(print_, caller)
        found: Caller = caller
        return found

    async def _look_up(self, print_: bytes, address: str) -> Any:
        if self._tokens.knew(print_):
            return await self._session.fetchrow(self._sql["token_find"], print_)
        async with self._strangers.turn(address):
            return await self._session.fetchrow(self._sql["token_find"], print_)

    def _slow_down(self, caller: Caller) -> None:
        """So many requests a second, with a burst of as many more."""
        if wait := self._buckets.take(caller.name):
            raise too_many(f"more than {self._buckets.rate:g} requests a second; try again in {wait:.1f} s", wait)


CHALLENGE = {"WWW-Authenticate": "Bearer"}


class _Known:
    """What was looked up lately."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Any, tuple[float, Any]] = OrderedDict()

    def get(self, key: Any) -> Any:
        at, value = self._entries.get(key, (0.0, None))
        return value if time.monotonic() - at < FRESH else None

    def knew(self, key: Any) -> bool:
        """Whether it was ever found, however long ago."""
        return key in self._entries

    def put(self, key: Any, value: Any) -> None:
        self._entries.pop(key, None)
        self._entries[key] = (time.monotonic(), value)
        if len(self._entries) > MOST_KNOWN:
            self._entries.popitem(last=False)

    def change(self, key: Any, value: Any) -> None:
        self._entries[key] = (self._entries[key][0], value)

    def drop(self, key: Any) -> None:
        self._entries.pop(key, None)


def _names_worker(header: str | None) -> bool:
    return is_token((header or "").rpartition(" ")[2], "node")


def _bearer(header: str | None) -> str | None:
    if header is None:
        return None
    kind, _, token = header.partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise Refused(401, "UNAUTHORIZED", "send the token as `Authorization: Bearer …`", headers=CHALLENGE)
    return token.strip()
