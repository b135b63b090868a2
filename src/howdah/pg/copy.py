"""Text for COPY, which is the same whatever codecs the owner of a connection has set on it."""

from __future__ import annotations


def field(value: str | bytes | None) -> bytes:
    r"""One field of a line.

    >>> field("a\tb"), field(None), field(b'{"x": "\\n"}')
    (b'a\\tb', b'\\N', b'{"x": "\\\\n"}')
    """
    if value is None:
        return b"\\N"
    text = value.encode() if isinstance(value, str) else value
    return text.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
