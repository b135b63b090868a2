"""What must not be kept: passwords and tokens in the text of errors, and text without end."""

from __future__ import annotations

import re
import traceback
from types import TracebackType

LONGEST_MESSAGE = 2_000
LONGEST_TRACEBACK = 8_000

_ADDRESS = re.compile(r"://[^\s?]*")
_IN_ADDRESS = re.compile(r"(://[^\s:/@]*):[^\s?]+@")
_SECRETS = [
    (
        re.compile(
            r"""(?ix)( (?:password|passwd|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|authorization)
            ["']? \s* [=:] \s* (?:bearer\s+|basic\s+)? ["']? ) [^\s"',;)}&]+"""
        ),
        r"\1***",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), r"\1 ***"),
    (
        re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{16,}"),
        "***",
    ),
]


def scrub(text: str) -> str:
    """Hide what looks like a secret.

    >>> scrub("cannot reach postgresql://me:hunter2@db/app with token=abc")
    'cannot reach postgresql://me:***@db/app with token=***'
    """
    text = _ADDRESS.sub(_without_password, text)
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text.replace("\0", "\\0").encode("utf-8", "replace").decode()


def _without_password(address: re.Match[str]) -> str:
    # up to the last @ only: beyond it every :// would be tried in vain, to the end, and texts may be hostile
    text, end = address[0], address[0].rfind("@") + 1
    return _IN_ADDRESS.sub(r"\1:***@", text[:end]) + text[end:]


def shorten(text: str, longest: int) -> str:
    """Cut the middle out of a long text: its beginning and its end say most."""
    if len(text) <= longest:
        return text
    keep = (longest - 40) // 2
    return f"{text[:keep]}\n… {len(text) - 2 * keep} characters cut …\n{text[-keep:]}"


def describe(error: BaseException) -> tuple[str, str, str]:
    """Class, message and traceback of an error, scrubbed and bounded; no local variables."""
    try:
        message = str(error)
    except Exception:
        message = "(its message cannot be shown)"
    try:
        lines = traceback.format_exception(type(error), error, _beyond_howdah(error.__traceback__), limit=50)
    except Exception:
        lines = ["(its traceback cannot be shown)"]
    kind = type(error).__qualname__
    return (
        shorten(kind, 200),
        shorten(scrub(message), LONGEST_MESSAGE),
        shorten(scrub("".join(lines)), LONGEST_TRACEBACK),
    )


def _beyond_howdah(tb: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that is the user's own."""
    start = tb
    while tb is not None and tb.tb_frame.f_globals.get("__name__", "").startswith(
        ("howdah.", "concurrent.", "asyncio.")
    ):
        tb = tb.tb_next
    return tb or start
