"""Authentication and authorisation: API tokens by their scopes, a worker's credential for that worker only."""

from __future__ import annotations

import hmac
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import msgspec

from howdah.control_plane.errors import RequestRejected, too_many, unauthorized, unknown
from howdah.control_plane.rate_limit import MAX_CLIENTS, RateLimiter, UnauthenticatedLimiter
from howdah.control_plane.tokens import fingerprint, is_token
from howdah.dashboard.protection import network_of
from howdah.postgres import sql
from howdah.postgres.database import Database, Session

log = logging.getLogger("howdah")

Needs = Literal["nothing", "enqueue", "work", "read", "admin", "node", "node or admin"]
CACHE_TTL = 2.0
"""Cache lifetime of tokens and workers in seconds: a revoked token is rejected after at most this time."""
MAX_OPEN_CLAIMS = 128
"""Claims that one worker may have open at once."""


class RegisteredWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that registered over HTTP, as the database has it."""

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
    revoked: bool
    """True if the token it registered with was revoked or has expired."""
    token_queues: Sequence[str] | None = None
    """Queues and tables that this token is valid for; ``None``: all."""


class Caller(NamedTuple):
    """The authenticated sender of a request."""

    name: str
    """Key of the rate limiter; does not reveal the token."""
    scopes: frozenset[str]
    queues: Sequence[str] | None
    node: RegisteredWorker | None
    token: int | None = None
    """Id of the API token."""
    title: str = "everybody"
    """Name of the API token, for display."""

    @property
    def audit_name(self) -> str:
        """The name that the audit trail records."""
        return self.name if self.token is None else f"{self.name} ({self.title})"

    def has_scope(self, scope: str) -> bool:
        """Return whether the caller has a scope; ``admin`` includes all others."""
        return scope in self.scopes or "admin" in self.scopes

    def may_use(self, queue: str) -> bool:
        """Return whether the token is valid for a queue, with or without labels, or for a table."""
        return is_allowed(queue, self.queues)

    def may_manage(self, queues: Sequence[str] | None, tables: Sequence[str]) -> bool:
        """Return whether the token is valid for all that a worker with these queues and tables may work on."""
        return self.queues is None or (queues is not None and all(map(self.may_use, (*queues, *tables))))


def is_allowed(name: str, queues: Sequence[str] | None) -> bool:
    """Return whether a queue or table is among the queues of a token; labels after ``+`` do not count.

    >>> is_allowed("mail", None), is_allowed("builds+gpu", ["builds"]), is_allowed("mail", ["builds"])
    (True, True, False)
    """
    return queues is None or name in queues or name.split("+")[0] in queues


ANONYMOUS = Caller("everybody", frozenset({"admin"}), None, None)
"""The caller where no token is required; the audit trail records it as ``everybody``."""


class Authenticator:
    """Identifies callers, checks their scopes and applies the rate limits."""

    def __init__(self, database: Database, session: Session, *, guarded: bool, rate: float, refusals: float) -> None:
        self._session = session
        self._sql = sql.load("howdah.control_plane", schema=database.schema)
        self.guarded = guarded
        """True if requests need a token."""
        self._tokens = _Cache()
        self._nodes = _Cache()
        self._limiter = RateLimiter(rate, 2 * rate)
        self._failures = UnauthenticatedLimiter(refusals)
        self._logged = RateLimiter(1 / 60, 1)
        self._open_claims: Counter[int] = Counter()

    async def check(self) -> None:
        """Raise unless tokens can be read from the database."""
        if self.guarded:
            await self._session.fetchrow(self._sql["token_find"], b"")

    async def authenticate(self, needs: Needs, header: str | None, node_id: int | None, address: str) -> Caller:
        """Return the caller or raise :class:`RequestRejected`. ``address``: peer address of the connection."""
        if needs == "nothing":
            return ANONYMOUS
        try:
            caller = await self._caller(needs, header, node_id, address)
        except RequestRejected as error:
            wait = self._failures.count_failure(address)
            self._log_rejected(address, error)
            # A worker must get the 404 that makes it register again, so its requests never become a 429 here.
            if wait and not _is_worker_credential(header):
                raise too_many("too many requests without a valid token came from this address", wait) from None
            raise
        self._check_rate(caller)
        wanted = "admin" if needs in ("node", "node or admin") else needs
        if caller.node is None and (needs == "node" or not caller.has_scope(wanted)):
            missing = "the credential of this worker" if needs == "node" else f"scope {wanted}"
            raise RequestRejected(403, "FORBIDDEN", f"this needs {missing}, which the token does not have")
        return caller

    def _log_rejected(self, address: str, error: RequestRejected) -> None:
        """Log that requests of an address are rejected, at most once a minute for each."""
        network = network_of(address)
        if error.status == 401 and not self._logged.acquire(network):
            log.warning("requests from %s are rejected: %s", address or "an unknown address", error)

    async def _caller(self, needs: Needs, header: str | None, node_id: int | None, address: str) -> Caller:
        token = _bearer(header)
        if token is None and self.guarded:
            raise unauthorized("send a token: `Authorization: Bearer hwd_…`")
        if needs.startswith("node") and node_id is not None and (token is None or is_token(token, "node")):
            return await self._worker_caller(token, node_id, address)
        return ANONYMOUS if token is None else await self.token_caller(token, address)

    async def node(self, id: int, *, fresh: bool = False) -> RegisteredWorker:
        """Return a worker by its id, from the cache unless ``fresh``."""
        known = None if fresh else self._nodes.get(id)
        if known is None:
            row = await self._session.fetchrow(self._sql["node"], id)
            if row is None:
                raise unknown(f"worker {id}; register again")
            known = RegisteredWorker(**row)
            self._nodes.put(id, known)
        found: RegisteredWorker = known
        return found

    def invalidate(self, id: int) -> None:
        """Drop a worker from the cache, since its row changed."""
        self._nodes.drop(id)

    @contextmanager
    def open_claim(self, id: int) -> Iterator[None]:
        """Count an open claim of a worker; reject it if too many are open."""
        if self._open_claims[id] >= MAX_OPEN_CLAIMS:
            raise too_many(f"{MAX_OPEN_CLAIMS} claims of this worker are open already; wait for one to end", 1)
        self._open_claims[id] += 1
        try:
            yield
        finally:
            self._open_claims[id] -= 1
            if not self._open_claims[id]:
                del self._open_claims[id]

    def update_state(self, id: int, state: str) -> None:
        """Set the state of a cached worker to idle or busy; the cache entry expires when it would have."""
        if (known := self._nodes.get(id)) is not None:
            self._nodes.replace(id, msgspec.structs.replace(known, state=state))

    async def _worker_caller(self, token: str | None, id: int, address: str) -> Caller:
        if self._nodes.seen(id):
            node = await self.node(id)
        else:
            async with self._failures.lookup(address):
                node = await self.node(id)
        if node.gone or node.credential is None:
            raise unknown(f"worker {id} any more; register again")
        if token is not None and not hmac.compare_digest(fingerprint(token), node.credential):
            raise unauthorized("the credential is not that of this worker")
        if node.revoked:
            raise unauthorized("the token this worker registered with is revoked")
        return Caller(f"node {id}", frozenset(), node.queues, node)

    async def token_caller(self, token: str, address: str = "") -> Caller:
        """Return the caller of an API token or raise :class:`RequestRejected`."""
        if not is_token(token, "api"):
            raise unauthorized("this is not a token of Howdah; was it cut or mistyped?")
        hash = fingerprint(token)
        caller = self._tokens.get(hash)
        if caller is None:
            row = await self._find_token(hash, address)
            if row is None or not hmac.compare_digest(row["hash"], hash):
                raise unauthorized("the token is unknown, expired or revoked")
            scopes = frozenset(row["scopes"])
            caller = Caller(f"token {row['id']}", scopes, row["queues"], None, row["id"], row["name"])
            self._tokens.put(hash, caller)
        found: Caller = caller
        return found

    async def _find_token(self, hash: bytes, address: str) -> Any:
        if self._tokens.seen(hash):
            return await self._session.fetchrow(self._sql["token_find"], hash)
        async with self._failures.lookup(address):
            return await self._session.fetchrow(self._sql["token_find"], hash)

    def _check_rate(self, caller: Caller) -> None:
        if wait := self._limiter.acquire(caller.name):
            raise too_many(f"more than {self._limiter.rate:g} requests a second; try again in {wait:.1f} s", wait)


class _Cache:
    """Database lookups of the last seconds, bounded in number."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Any, tuple[float, Any]] = OrderedDict()

    def get(self, key: Any) -> Any:
        at, value = self._entries.get(key, (0.0, None))
        return value if time.monotonic() - at < CACHE_TTL else None

    def seen(self, key: Any) -> bool:
        """Return whether the key was ever found, even if the entry has expired."""
        return key in self._entries

    def put(self, key: Any, value: Any) -> None:
        self._entries.pop(key, None)
        self._entries[key] = (time.monotonic(), value)
        if len(self._entries) > MAX_CLIENTS:
            self._entries.popitem(last=False)

    def replace(self, key: Any, value: Any) -> None:
        """Replace a value without extending its lifetime."""
        self._entries[key] = (self._entries[key][0], value)

    def drop(self, key: Any) -> None:
        self._entries.pop(key, None)


def _is_worker_credential(header: str | None) -> bool:
    return is_token((header or "").rpartition(" ")[2], "node")


def _bearer(header: str | None) -> str | None:
    if header is None:
        return None
    kind, _, token = header.partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise unauthorized("send the token as `Authorization: Bearer …`")
    return token.strip()
