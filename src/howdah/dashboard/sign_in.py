"""Sign-in: passwords and tokens, sessions shared by all replicas, the limit of wrong passwords, the login page."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from howdah.dashboard.protection import RequestError, network_of
from howdah.dashboard.request import DashboardPage, DashboardRequest, Level, Visitor
from howdah.postgres import sql
from howdah.postgres.database import Database

log = logging.getLogger("howdah")

SESSION_LIFETIME = 12 * 3600.0
"""Lifetime of a session, in seconds."""
SESSION_CACHE_TTL = 2.0
"""Cache lifetime in seconds: a session ended on another replica is rejected after at most this."""
MAX_CACHED_SESSIONS = 1000
SESSION_COOKIE = "__Host-howdah"
PLAIN_SESSION_COOKIE = "howdah-session"
"""The cookie without TLS: a browser does not accept a ``__Host-`` cookie there."""
MAX_WRONG_PASSWORDS = 10
"""Wrong passwords per address and minute; further attempts of the address are slow."""
SLOW_ATTEMPT = 2.0
"""Seconds that such an attempt takes."""
MAX_SLOW_ATTEMPTS = 5
"""Such attempts of one address at once; more are rejected."""
MINUTE = 60.0
MAX_ADDRESSES = 10_000

Access = Callable[[Request], Awaitable[Visitor | None]]
"""Returns the visitor of a request; ``None``: unknown."""
SignIn = Callable[[str], Awaitable[Visitor | None]]
"""Returns the visitor with this password or token; ``None``: unknown."""


def everybody(level: Level = "read") -> Access:
    """Allow every request: for a dashboard that only this machine can reach, or that a proxy protects."""

    async def access(_request: Request) -> Visitor:
        return Visitor("everybody", level)

    return access


class Login:
    """Checks passwords and tokens of users, and keeps their sessions."""

    def __init__(
        self, check: SignIn, database: Database, pool: Callable[[], Any], limiter: LoginLimiter, secure: bool
    ) -> None:
        self.check = check
        self.sessions = DashboardSessions(database, pool, getattr(check, "seals", None))
        self.secure = secure
        """True if all requests come over TLS, also if a proxy ends it."""
        self.limiter = limiter

    async def visitor(self, request: Request) -> Visitor | None:
        """Return the visitor whose session cookie a request has."""
        id = request.cookies.get(self.cookie(request))
        return await self.sessions.find(id) if id else None

    def cookie(self, request: Request) -> str:
        """Return the name of the session cookie. Over TLS only the one is accepted that no plain page can set."""
        return SESSION_COOKIE if self.secure or request.url.scheme == "https" else PLAIN_SESSION_COOKIE


class DashboardSessions:
    """Begin, find and end sessions.

    The key of a session that was begun with a password depends on that password too. So it is not found any more once
    the password is changed or removed, and nothing derived from the password alone is stored.
    """

    def __init__(self, database: Database, pool: Callable[[], Any], seals: Sequence[bytes] | None) -> None:
        """``seals``: of the passwords that are valid now; ``None``: sessions do not depend on a password."""
        self._pool = pool
        self._seals = seals
        self._sql = sql.load("howdah.dashboard", schema=database.schema)
        self._known: OrderedDict[bytes, tuple[float, Visitor]] = OrderedDict()

    async def begin(self, visitor: Visitor) -> str:
        """Begin a session; return the cookie's value."""
        id = secrets.token_urlsafe(32)
        async with (await self._pool()).acquire() as conn:
            await conn.execute(self._sql["forget_logins"])
            await conn.execute(
                self._sql["begin_login"],
                _hash(id, visitor.seal),
                visitor.name,
                visitor.level,
                visitor.token,
                SESSION_LIFETIME,
            )
        return id

    async def find(self, id: str) -> Visitor | None:
        """Return the user of a session, while it lasts."""
        key = _hash(id)
        at, visitor = self._known.get(key, (0.0, None))
        if visitor is not None and time.monotonic() - at < SESSION_CACHE_TTL:
            return visitor
        async with (await self._pool()).acquire() as conn:
            row = await conn.fetchrow(self._sql["find_login"], self._keys(id))
        self._known.pop(key, None)
        if row is None:
            return None
        if self._seals is not None and row["hash"] == key and row["token"] is None:
            return None  # release 0.2 began it with a password, which may have changed since
        visitor = Visitor(row["who"], row["level"], row["token"])
        self._known[key] = (time.monotonic(), visitor)
        if len(self._known) > MAX_CACHED_SESSIONS:
            self._known.popitem(last=False)
        return visitor

    async def end(self, id: str) -> None:
        """Sign out."""
        self._known.pop(_hash(id), None)
        async with (await self._pool()).acquire() as conn:
            await conn.execute(self._sql["end_login"], self._keys(id))

    def _keys(self, id: str) -> list[bytes]:
        return [_hash(id), *(_hash(id, seal) for seal in self._seals or ())]


def _hash(id: str, seal: bytes = b"") -> bytes:
    return hashlib.sha256(id.encode("utf-8", "surrogatepass") + seal).digest()


def seal_of(password: str) -> bytes:
    """Return the value that ties sessions to a password."""
    return hashlib.sha256(b"howdah dashboard " + password.encode()).digest()


class LoginLimiter:
    """Rate limiter of wrong passwords, per address (IPv6: per /64 network).

    Behind a proxy all users have one address, so the right password is accepted also after many wrong ones. Attempts
    are then slow, and only a few are made at once.
    """

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._slow: Counter[str] = Counter()

    @asynccontextmanager
    async def attempt(self, address: str) -> AsyncIterator[None]:
        """Delay an attempt of an address with too many wrong passwords; reject it if too many wait already."""
        address = network_of(address)
        since, wrong = self._wrong.get(address, (0.0, 0))
        if wrong < MAX_WRONG_PASSWORDS or time.monotonic() - since > MINUTE:
            yield
            return
        if self._slow[address] >= MAX_SLOW_ATTEMPTS:
            raise RequestError(429, "Too many wrong passwords.", f"Try again in {SLOW_ATTEMPT:.0f} s.")
        self._slow[address] += 1
        try:
            await asyncio.sleep(SLOW_ATTEMPT)
            yield
        finally:
            self._slow[address] -= 1
            if not self._slow[address]:
                del self._slow[address]

    def count_failure(self, address: str) -> None:
        """Count a wrong password."""
        log.warning("a wrong password or token for the dashboard came from %s", address or "an unknown address")
        address, now = network_of(address), time.monotonic()
        since, wrong = self._wrong.pop(address, (now, 0))
        if now - since > MINUTE:
            since, wrong = now, 0
        self._wrong[address] = (since, wrong + 1)
        if len(self._wrong) > MAX_ADDRESSES:
            self._wrong.popitem(last=False)


# ---------------------------------------------------------------- the login page


async def form(visit: DashboardRequest) -> Response:
    """The page to sign in on."""
    return visit.page("login.html", to=_local_path(visit.param("to")), wrong=False)


async def sign_in(visit: DashboardRequest) -> Response:
    """Check a password or token."""
    login = _login(visit)
    to = _local_path(visit.field("to", ""))
    async with login.limiter.attempt(visit.address):
        visitor = await login.check(visit.field("secret"))
    if visitor is None:
        login.limiter.count_failure(visit.address)
        return visit.page("login.html", 401, to=to, wrong=True)
    id = await login.sessions.begin(visitor)
    response = visit.redirect(to)
    cookie = login.cookie(visit.request)
    response.set_cookie(
        cookie,
        id,
        max_age=int(SESSION_LIFETIME),
        path="/",
        secure=cookie == SESSION_COOKIE,
        httponly=True,
        samesite="strict",
    )
    return response


async def sign_out(visit: DashboardRequest) -> Response:
    """End the session."""
    for name in (SESSION_COOKIE, PLAIN_SESSION_COOKIE):
        if id := visit.request.cookies.get(name):
            await _login(visit).sessions.end(id)
    response = visit.redirect("/login")
    response.delete_cookie(SESSION_COOKIE, path="/", secure=True, httponly=True, samesite="strict")
    response.delete_cookie(PLAIN_SESSION_COOKIE, path="/", httponly=True, samesite="strict")
    return response


def _login(visit: DashboardRequest) -> Login:
    login: Login = visit.request.state.dashboard.login
    return login


def _local_path(to: str) -> str:
    """Return a path within the dashboard, or its first page: a login must not redirect to another site."""
    return to if to.startswith("/") and not to.startswith(("//", "/\\")) and "\n" not in to else "/"


LOGIN_PAGES = [
    DashboardPage("GET", "/login", "nothing", form),
    DashboardPage("POST", "/login", "nothing", sign_in),
    DashboardPage("POST", "/logout", "nothing", sign_out),
]
