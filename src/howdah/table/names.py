"""Parsing and quoting of SQL names: relations with an alias, and columns to order by."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from howdah.errors import ConfigError
from howdah.postgres import sql
from howdah.postgres.sql import identifier

_MARK = re.compile(r"/\*<(\w+)>\*/(?:(.*?)/\*</\1>\*/)?", re.DOTALL)


@cache
def read() -> dict[str, str]:
    """Return the text of every SQL file, by its name."""
    folder = files("howdah.table") / "sql"
    return {
        file.name.removesuffix(".sql"): file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".sql")
    }


def build(verb: str, names: Mapping[str, str], **fragments: str) -> str:
    """Build one statement. Placeholders are replaced in one pass, so a name is never taken for a placeholder."""
    text, built, at = read()[verb], [], 0
    for mark in _MARK.finditer(text):
        built.append(sql.render(text[at : mark.start()], names))
        built.append(fragments.get(mark[1], sql.render(mark[2] or "", names)))
        at = mark.end()
    return "".join(built) + sql.render(text[at:], names)


_WORD = r'(?:"(?:""|[^"])+"|[^\W\d][\w$]*)'
_RELATION = re.compile(rf"\s*({_WORD})(?:\.({_WORD}))?(?:\s+(?:as\s+)?({_WORD}))?\s*", re.IGNORECASE)
_ORDER = re.compile(
    rf"\s*(?:({_WORD})\.)?({_WORD})(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*",
    re.IGNORECASE,
)


def unquote(word: str) -> str:
    """Return the name that an SQL identifier denotes.

    >>> unquote("Uploads"), unquote('"Up""loads"')
    ('uploads', 'Up"loads')
    """
    return word[1:-1].replace('""', '"') if word.startswith('"') else word.lower()


@dataclass(frozen=True, slots=True)
class RelationName:
    """The name of a table or view, with the alias that conditions may use."""

    parts: tuple[str, ...]
    alias: str

    @classmethod
    def parse(cls, text: str) -> RelationName:
        """Parse ``app.uploads``, ``"Odd name"`` or ``app.uploads u``."""
        match = _RELATION.fullmatch(text) if isinstance(text, str) else None
        if not match:
            raise ConfigError(f"{text!r} does not name a table; write table, schema.table or schema.table alias")
        parts = tuple(unquote(word) for word in match.group(1, 2) if word)
        alias = unquote(match[3]) if match[3] else parts[-1]
        for name in (*parts, alias):
            identifier(name)
        return cls(parts, alias)

    @property
    def quoted(self) -> str:
        """The quoted name, as ``to_regclass`` takes it."""
        return ".".join(map(identifier, self.parts))

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class OrderBy:
    """One column to order by."""

    qualifier: str | None
    word: str
    """The column as it was written."""
    descending: bool
    nulls: str | None

    @classmethod
    def parse(cls, text: str) -> OrderBy:
        """Parse ``priority desc nulls last``."""
        match = _ORDER.fullmatch(text) if isinstance(text, str) else None
        if not match:
            raise ConfigError(
                f"cannot order by {text!r}; write a column, then asc or desc, then nulls first or nulls last"
            )
        qualifier, word, direction, nulls = match.groups()
        return cls(
            unquote(qualifier) if qualifier else None,
            word,
            (direction or "").lower() == "desc",
            nulls.lower() if nulls else None,
        )

    def column(self, known: Collection[str]) -> str | None:
        """Return the matching column: exactly as written, else as SQL folds it."""
        return next((name for name in (self.word, unquote(self.word)) if name in known), None)

    def render(self, alias: str, column: str) -> str:
        """As SQL, quoted."""
        direction = " desc" if self.descending else ""
        nulls = f" nulls {self.nulls}" if self.nulls else ""
        return f"{identifier(alias)}.{identifier(column)}{direction}{nulls}"
