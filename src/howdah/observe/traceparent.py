"""Traceparent: how a trace is written down, after W3C Trace Context."""

from __future__ import annotations

import re

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


def parse(traceparent: str | None) -> tuple[int, int, int] | None:
    """Trace id, span id and flags of a W3C ``traceparent``; ``None`` when it is none.

    >>> parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    (14576827793038113322513871894673895836, 13235353014750950193, 1)
    >>> parse("00-00000000000000000000000000000000-b7ad6b7169203331-01")
    """
    match = _TRACEPARENT.fullmatch(traceparent or "")
    return (int(match[1], 16), int(match[2], 16), int(match[3], 16)) if match else None
