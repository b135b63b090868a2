"""Signatures of webhook messages: hex of HMAC-SHA-256 over ``timestamp.body``, one for each secret."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence

VERSION = "v1"
TOLERANCE = 300.0
"""Seconds that the timestamp of a message may differ from now; beyond, it is taken for a replay."""


def sign(secrets: Sequence[str], timestamp: int, body: bytes) -> str:
    """Return the value of the header `Howdah-Signature`.

    >>> sign(["a secret of some length"], 1700000000, b"{}")[:19]
    'v1=9008b8e96ac884fb'
    """
    return ",".join(f"{VERSION}={_digest(secret, timestamp, body)}" for secret in secrets)


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secret: str | Sequence[str],
    *,
    tolerance: float = TOLERANCE,
    now: float | None = None,
) -> bool:
    """Return whether a message was signed with the secret, or one of them, and is no older than ``tolerance`` seconds.

    ``headers``: as the framework gives them; ``body``: the bytes as received, before anything parsed them.
    """
    given = {name.lower(): value for name, value in headers.items()}
    timestamp, value = given.get("howdah-timestamp", ""), given.get("howdah-signature", "")
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 20):
        return False
    if abs((time.time() if now is None else now) - int(timestamp)) > tolerance:
        return False
    secrets = [secret] if isinstance(secret, str) else secret
    known = [_digest(each, int(timestamp), body).encode() for each in secrets]
    signatures = [part.strip().removeprefix(f"{VERSION}=").encode() for part in value.split(",")]
    return any(hmac.compare_digest(ours, theirs) for ours in known for theirs in signatures)


def _digest(secret: str, timestamp: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
