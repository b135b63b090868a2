"""Loads SQL files: ``$1`` are values, ``{braces}`` are identifiers, and there is no third way to build SQL.

``{schema}`` becomes the quoted identifier; ``{'schema'}`` its name as a text literal; ``{'schema.job'}`` the
text literal of a qualified name, for ``nextval`` and ``regclass``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from howdah.errors import ConfigError


def copy_field(value: str | bytes | None) -> bytes:
    r"""Return one field of a line of COPY text; the same whatever codecs are set on the connection.

    >>> copy_field("a\tb"), copy_field(None), copy_field(b'{"x": "\\n"}')
    (b'a\\tb', b'\\N', b'{"x": "\\\\n"}')
    """
    if value is None:
        return b"\\N"
    text = value.encode() if isinstance(value, str) else value
    return text.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n").replace(b"\r", b"\\r")


_PLACEHOLDER = re.compile(r"\{(?:(\w+)|'(\w+)(?:\.(\w+))?')\}")


def identifier(name: str) -> str:
    """Quote one identifier.

    >>> identifier('we"ird')
    '"we""ird"'
    """
    if not name or "\0" in name or len(name.encode("utf-8", "surrogatepass")) > 63:
        raise ConfigError(f"{name!r} is not a valid PostgreSQL identifier; use 1 to 63 bytes")
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote one text literal, for statements that cannot take parameters.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def dollar_quoted(text: str) -> str:
    """Quote one text literal whatever ``standard_conforming_strings`` says of its backslashes.

    >>> dollar_quoted("it's"), dollar_quoted("$q$")
    ("$q$it's$q$", '$qq$$q$$qq$')
    """
    tag = "$q$"
    while tag in f"{text}$":  # the end of the text and the tag may make another tag
        tag = f"${'q' * (len(tag) - 1)}$"
    return f"{tag}{text}{tag}"


def render(text: str, names: Mapping[str, str]) -> str:
    """Replace the placeholders of a statement by quoted identifiers.

    >>> render("select nextval({'schema.job_id'}) from {schema}.job", {"schema": "a b"})
    'select nextval(\\'"a b".job_id\\') from "a b".job'
    """

    def replace(match: re.Match[str]) -> str:
        bare, quoted, member = match.groups()
        if bare:
            return identifier(names[bare])
        if member:
            return literal(f"{identifier(names[quoted])}.{member}")
        return literal(names[quoted])

    return _PLACEHOLDER.sub(replace, text)


@cache
def _read(package: str) -> dict[str, str]:
    folder = files(package) / "sql"
    return {
        file.name.removesuffix(".sql"): file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }


def load(package: str, **names: str) -> dict[str, str]:
    """Return every statement in ``package``'s ``sql`` folder, by file name without ``.sql``."""
    return {verb: render(text, names) for verb, text in _read(package).items()}


def columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Transpose rows into the arrays that ``unnest`` takes.

    >>> columns([(1, "a"), (2, "b")], 2)
    [[1, 2], ['a', 'b']]
    """
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]
