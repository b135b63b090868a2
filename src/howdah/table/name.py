"""Names as SQL writes them: of relations with an alias, and of columns to order by."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from howdah.errors import ConfigError
from howdah.pg.sql import identifier

_WORD = r'(?:"(?:""|[^"])+"|[^\W\d][\w$]*)'
_RELATION = re.compile(rf"\s*({_WORD})(?:\.({_WORD}))?(?:\s+(?:as\s+)?({_WORD}))?\s*", re.IGNORECASE)
_ORDER = re.compile(
    rf"\s*(?:({_WORD})\.)?({_WORD})(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*",
    re.IGNORECASE,
)


def unquote(word: str) -> str:
    """The name a word of SQL means.

    >>> unquote("Uploads"), unquote('"Up""loads"')
    ('uploads', 'Up"loads')
    """
    return word[1:-1].replace('""', '"') if word.startswith('"') else word.lower()


@dataclass(frozen=True, slots=True)
class RelationName:
    """A table or view by name, with the alias conditions may use for it."""

    parts: tuple[str, ...]
    alias: str

    @classmethod
    def parse(cls, text: str) -> RelationName:
        """Read ``app.uploads``, ``"Odd name"`` or ``app.uploads u``."""
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
        """As ``to_regclass`` wants it."""
        return ".".join(map(identifier, self.parts))

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class Order:
    """One column to order by."""

    qualifier: str | None
    word: str
    """The column as it was written."""
    descending: bool
    nulls: str | None

    @classmethod
    def parse(cls, text: str) -> Order:
        """Read ``priority desc nulls last``."""
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
        """The column meant among those there are: exactly as written, else as SQL folds it."""
        return next((name for name in (self.word, unquote(self.word)) if name in known), None)

    def render(self, alias: str, column: str) -> str:
        """As SQL, quoted."""
        direction = " desc" if self.descending else ""
        nulls = f" nulls {self.nulls}" if self.nulls else ""
        return f"{identifier(alias)}.{identifier(column)}{direction}{nulls}"
