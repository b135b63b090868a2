"""SQL conditions with values: the developer's text, and values as parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from howdah.errors import ConfigError

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
