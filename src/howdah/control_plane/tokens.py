"""API tokens and worker credentials: creation, format, storage as a hash, revocation.

A token is ``hwd_<sort>_<43 characters><6 characters>``: a prefix that scanners find, 256 random bits, and a checksum,
so that a mistyped one is rejected without a database lookup.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from howdah.audit import AuditTrail
from howdah.errors import ConfigError
from howdah.handler import check_name
from howdah.postgres import sql
from howdah.postgres.database import Database, Session

Scope = Literal["enqueue", "work", "read", "admin"]
SCOPES: tuple[Scope, ...] = ("enqueue", "work", "read", "admin")
SORTS = ("api", "node")
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
FORMAT = re.compile(r"hwd_(api|node)_([0-9A-Za-z]{43})([0-9A-Za-z]{6})")
MAX_QUEUES = 100


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is stored: everything but the token itself."""

    id: int
    name: str
    hint: str
    """Its first characters."""
    scopes: Sequence[str]
    queues: Sequence[str] | None
    """Queues it is valid for; ``None``: all."""
    created_at: datetime
    expires_at: datetime | None
    used_at: datetime | None
    """When it was last used, to the minute."""
    revoked_at: datetime | None

    @property
    def state(self) -> str:
        """``good`` or ``revoked``; expiry is decided by the server's clock only."""
        return "revoked" if self.revoked_at else "good"


def make(sort: Literal["api", "node"] = "api") -> str:
    """Return a new token.

    >>> is_token(make()), is_token(make("node")), is_token("hwd_api_nonsense")
    (True, True, False)
    """
    body = _base62(int.from_bytes(secrets.token_bytes(32), "big"), 43)
    return f"hwd_{sort}_{body}{_checksum(sort, body)}"


def is_token(text: str, sort: str | None = None) -> bool:
    """Return whether a text has the format of a token of this sort, with the right checksum."""
    match = FORMAT.fullmatch(text)
    if match is None or (sort is not None and match[1] != sort):
        return False
    return hmac.compare_digest(_checksum(match[1], match[2]), match[3])


def fingerprint(token: str) -> bytes:
    """Return the hash that is stored of a token."""
    return hashlib.sha256(token.encode()).digest()


class Tokens:
    """Creates, lists and revokes tokens."""

    def __init__(self, database: Database, session: Session) -> None:
        self._session = session
        self._sql = sql.load("howdah.control_plane", schema=database.schema)
        self._trail = AuditTrail(database.schema)

    async def create(
        self, name: str, scopes: Sequence[str], *, queues: Sequence[str] | None = None, expires: float | None = None
    ) -> tuple[str, TokenRow]:
        """Create a token. Return it, which is possible only now, and its row. ``expires``: seconds until it expires."""
        check_name("token name", name)
        if not scopes or set(scopes) - set(SCOPES):
            raise ConfigError(f"scopes are one or more of {', '.join(SCOPES)}; got {', '.join(scopes) or 'none'}")
        if queues is not None and not 1 <= len(queues) <= MAX_QUEUES:
            raise ConfigError(f"name 1 to {MAX_QUEUES} queues, or none to allow all; got {len(queues)}")
        for queue in queues or ():
            check_name("queue", queue)
        if expires is not None and not expires > 0:
            raise ConfigError(f"a token cannot expire after {expires!r} seconds; give a time above zero")
        token = make()
        values = (name, fingerprint(token), token[:12], sorted(set(scopes)), None if queues is None else list(queues))
        async with self._session.use() as conn, conn.transaction():
            made = TokenRow(**await conn.fetchrow(self._sql["token_create"], *values, expires))
            after = {"name": name, "scopes": made.scopes, "queues": made.queues, "expires_at": made.expires_at}
            await self._trail.record(conn, "create", "token", [made.id], after=after)
        return token, made

    async def list(self) -> Sequence[TokenRow]:
        """Return all tokens, newest first."""
        return [TokenRow(**row) for row in await self._session.fetch(self._sql["token_list"])]

    async def revoke(self, id: int) -> None:
        """Revoke a token; control planes reject it within seconds."""
        async with self._session.use() as conn, conn.transaction():
            row = await conn.fetchrow(self._sql["token_revoke"], id)
            if row is None:
                raise ConfigError(f"there is no token {id}; `howdah token list` shows them")
            if row["fresh"]:
                before, after = {"name": row["name"], "revoked": False}, {"name": row["name"], "revoked": True}
                await self._trail.record(conn, "revoke", "token", [id], before=before, after=after)


def _checksum(sort: str, body: str) -> str:
    return _base62(zlib.crc32(f"{sort}_{body}".encode()), 6)


def _base62(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 62)
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
