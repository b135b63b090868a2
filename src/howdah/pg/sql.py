"""SQL in files: ``$1`` are values, ``{braces}`` are identifiers, and there is no third way to build it.

``{schema}`` becomes the quoted identifier; ``{'schema'}`` its name as a text literal; ``{'schema.job'}`` the
text literal of a qualified name, as ``nextval`` and ``regclass`` want it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from howdah.errors import ConfigError

_PLACE = re.compile(r"\{(?:(\w+)|'(\w+)(?:\.(\w+))?')\}")


def identifier(name: str) -> str:
    """Quote one identifier.

    >>> identifier('we"ird')
    '"we""ird"'
    """
    if not name or "\0" in name or len(name.encode("utf-8", "surrogatepass")) > 63:
        raise ConfigError(f"{name!r} cannot be the name of anything in PostgreSQL; use 1 to 63 bytes")
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote one text literal, for statements that cannot take parameters.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def render(text: str, names: Mapping[str, str]) -> str:
    """Put identifiers into a statement.

    >>> render("select nextval({'schema.job_id'}) from {schema}.job", {"schema": "a b"})
    'select nextval(\\'"a b".job_id\\') from "a b".job'
    """

    def place(match: re.Match[str]) -> str:
        bare, quoted, member = match.groups()
        if bare:
            return identifier(names[bare])
        if member:
            return literal(f"{identifier(names[quoted])}.{member}")
        return literal(names[quoted])

    return _PLACE.sub(place, text)


@cache
def _read(room: str) -> dict[str, str]:
    folder = files(room) / "sql"
    return {
        file.name.removesuffix(".sql"): file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }


def load(room: str, **names: str) -> dict[str, str]:
    """Return every statement in ``room``'s ``sql`` folder, by file name without ``.sql``."""
    return {verb: render(text, names) for verb, text in _read(room).items()}
