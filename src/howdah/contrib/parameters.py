"""Named parameters, written as each library wants them.

Quoted names and literals keep their meaning: a schema may be called ``50%`` or ``:a``.
"""

from __future__ import annotations

import re
from functools import lru_cache

_PIECE = re.compile(r"""("(?:[^"]|"")*"|'(?:[^']|'')*')|:([a-z_]+)|%""")


@lru_cache(maxsize=64)
def percent(statement: str) -> str:
    """``:name`` as ``%(name)s``, and every other percent sign doubled.

    >>> percent('select :a from "50%:b"')
    'select %(a)s from "50%%:b"'
    """

    def write(piece: re.Match[str]) -> str:
        return f"%({piece[2]})s" if piece[2] else piece[0].replace("%", "%%")

    return _PIECE.sub(write, statement)


@lru_cache(maxsize=64)
def colon(statement: str) -> str:
    r"""``:name`` left as it is, and every other colon escaped.

    >>> print(colon('select :a from "50%:b"'))
    select :a from "50%\:b"
    """

    def write(piece: re.Match[str]) -> str:
        return piece[0].replace(":", r"\:") if piece[1] else piece[0]

    return _PIECE.sub(write, statement)
