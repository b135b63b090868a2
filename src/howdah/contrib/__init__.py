"""Connections of other libraries, to enqueue through: psycopg, SQLAlchemy and Django.

A library is imported here only when the caller already has one of its connections.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import import_module

from howdah.postgres.foreign import ForeignConnection

LIBRARIES = ("psycopg", "sqlalchemy", "django")


def wrap(conn: object) -> ForeignConnection | None:
    """Wrap a connection of another library; return ``None`` if the library is not known."""
    # __class__, not type(): a proxy, as tracers make them, has the class of its connection there
    origins = {parent.__module__.partition(".")[0] for parent in conn.__class__.__mro__}
    for library in LIBRARIES:
        if library in origins:
            wrapped: ForeignConnection | None = import_module(f"howdah.contrib.with_{library}").wrap(conn)
            if wrapped is not None:
                return wrapped
    return None


_PLACEHOLDER = re.compile(r"""("(?:[^"]|"")*"|'(?:[^']|'')*')|:([a-z_]+)|%""")


@lru_cache(maxsize=64)
def percent(statement: str) -> str:
    """Return a statement with ``:name`` as ``%(name)s`` and every other percent sign doubled, for psycopg and Django.

    Quoted names and literals keep their meaning: a schema may be called ``50%`` or ``:a``.

    >>> percent('select :a from "50%:b"')
    'select %(a)s from "50%%:b"'
    """

    def replace(piece: re.Match[str]) -> str:
        return f"%({piece[2]})s" if piece[2] else piece[0].replace("%", "%%")

    return _PLACEHOLDER.sub(replace, statement)


@lru_cache(maxsize=64)
def colon(statement: str) -> str:
    r"""Return a statement with ``:name`` left as it is and every other colon escaped, for SQLAlchemy.

    >>> print(colon('select :a from "50%:b"'))
    select :a from "50%\:b"
    """

    def replace(piece: re.Match[str]) -> str:
        return piece[0].replace(":", r"\:") if piece[1] else piece[0]

    return _PLACEHOLDER.sub(replace, statement)
