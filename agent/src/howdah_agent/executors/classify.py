"""Error codes of failed programs and requests.

Structured facts are checked first: the exit code, the HTTP status, the type of the exception. Only if they decide
nothing is text searched, and only in the tail of stderr: a test that prints "unauthorized" must not fail a build for
good.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from howdah.errors import ArgumentError, code_of

EXITS: Mapping[int, str] = {64: "INVALID_SPEC", 65: "INVALID_SPEC", 77: "AUTH_FAILED", 124: "TIMEOUT"}
"""Exit codes with a common meaning: those of sysexits.h and timeout(1)."""

STATUSES: Mapping[int, str] = {
    400: "INVALID_SPEC",
    401: "AUTH_FAILED",
    403: "AUTH_FAILED",
    408: "TIMEOUT",
    413: "INVALID_SPEC",
    422: "INVALID_SPEC",
    429: "RATE_LIMITED",
    504: "TIMEOUT",
}

TYPES: Mapping[type[BaseException], str] = {TimeoutError: "TIMEOUT", ArgumentError: "INVALID_SPEC"}

Words = Sequence[tuple[str, str]]
WORDS: Words = (
    ("rate limit", "RATE_LIMITED"),
    ("quota exceeded", "RATE_LIMITED"),
    ("unauthorized", "AUTH_FAILED"),
    ("invalid api key", "AUTH_FAILED"),
    ("context deadline exceeded", "TIMEOUT"),
)
"""Texts to search for and the code of each; the first that is found decides."""

TAIL = 2000
"""Number of characters at the end of stderr that are searched."""
OTHERWISE = "AGENT_ERROR"


def classify(
    *,
    exit_code: int | None = None,
    status: int | None = None,
    error: BaseException | None = None,
    stderr: str = "",
    exits: Mapping[int, str] = EXITS,
    words: Words = WORDS,
) -> str:
    """Return the error code of a failure.

    >>> classify(exit_code=77, stderr="rate limit"), classify(exit_code=1, stderr="API: Rate limit reached")
    ('AUTH_FAILED', 'RATE_LIMITED')
    >>> classify(status=429), classify(error=TimeoutError()), classify(exit_code=1)
    ('RATE_LIMITED', 'TIMEOUT', 'AGENT_ERROR')
    """
    if exit_code is not None and exit_code in exits:
        return exits[exit_code]
    if status is not None and status in STATUSES:
        return STATUSES[status]
    if error is not None:
        known = code_of(error) or next((code for kind, code in TYPES.items() if isinstance(error, kind)), None)
        if known:
            return known
    tail = stderr[-TAIL:].lower()
    return next((code for word, code in words if word.lower() in tail), OTHERWISE)


def wait_in(text: str) -> float | None:
    """Return the delay in seconds that the end of an output requests, as in ``Retry-After: 30``.

    >>> wait_in("429 Too Many Requests\\nretry-after: 30"), wait_in("try again in 1.5s"), wait_in("no")
    (30.0, 1.5, None)
    """
    found = re.findall(r"(?i)(?:retry[- ]after|try again in|retry in)[:=]?\s*(\d{1,6}(?:\.\d+)?)", text[-TAIL:])
    return float(found[-1]) if found else None
