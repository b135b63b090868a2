"""Statements on a user's table: templates, names of relations, columns to order by, and conditions with values."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

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


_TOKEN = re.compile(
    r"""[eE]'(?:\\.|''|[^'\\])*' | '(?:''|[^'])*' | "(?:""|[^"])*"
    | \$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$
    | --[^\n]* | /\*.*?\*/
    | \$(?P<number>\d+) | (?P<paren>[()])""",
    re.VERBOSE | re.DOTALL,
)


class Where:
    """A condition on rows: ``Where("kind = $1 and size < $2", "zip", 100)``."""

    __slots__ = ("text", "values")

    def __init__(self, text: str, *values: Any) -> None:
        self.text = text
        self.values = values
        if not isinstance(text, str) or not text.strip() or "\0" in text:
            raise ConfigError(f"a where must be a condition in SQL, got {text!r}")
        depth, numbers = 0, set()
        for match in _TOKEN.finditer(text):
            if match["number"]:
                numbers.add(int(match["number"]))
            elif match["paren"]:
                depth += 1 if match["paren"] == "(" else -1
                if depth < 0:
                    break
        if depth:
            raise ConfigError(f"the parentheses of where {text!r} do not match")
        if numbers != set(range(1, len(values) + 1)):
            raise ConfigError(
                f"where {text!r} must use each of $1 to ${len(values)}"
                if values
                else f"where {text!r} has {len(numbers)} parameters and no values; pass them after the text"
            )

    def __repr__(self) -> str:
        return f"Where({', '.join([repr(self.text), *map(repr, self.values)])})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Where) and (self.text, self.values) == (other.text, other.values)

    def __hash__(self) -> int:
        return hash((self.text, self.values))

    def numbered(self, after: int) -> str:
        """Return the text with its parameters numbered after ``after``.

        >>> Where("a = $1 and b = '$1'", 7).numbered(3)
        "a = $4 and b = '$1'"
        """
        return _TOKEN.sub(lambda m: f"${int(m['number']) + after}" if m["number"] else m[0], self.text)


def conjunction(wheres: Sequence[Where], after: int) -> tuple[str, list[Any]]:
    """Join conditions as ``and (…)``, each in parentheses, with values; parameters are numbered after ``after``."""
    return "".join(_each(wheres, after)), [value for where in wheres for value in where.values]


def _each(wheres: Sequence[Where], after: int) -> Iterator[str]:
    for where in wheres:
        yield f"\n      and (\n{where.numbered(after)}\n)"  # On a line of its own, because it may end in a comment.
        after += len(where.values)


def channel(table: str) -> str:
    """Return the notification channel of a table, by its quoted name."""
    return "howdah_table_" + hashlib.md5(table.encode(), usedforsecurity=False).hexdigest()[:16]
