"""Template: a command with places for arguments. There is no shell: an argument is one word, whatever it holds."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from howdah.errors import ConfigError, coded

PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
MANY = re.compile(r"\{([A-Za-z_]\w*)\*\}")


class Template:
    """The words of a command; ``{name}`` is one argument of the job, ``{names*}`` a word for each of a list.

    >>> Template(["convert", "{source}", "--size={width}", "{more*}"]).names
    ['source', 'width', 'more']
    """

    def __init__(self, words: Sequence[str], *, options: Collection[str] = ()) -> None:
        if isinstance(words, str) or not words:
            raise ConfigError(f"a command is a list of words, got {words!r}; there is no shell to split it")
        if PLACE.search(words[0]) or MANY.search(words[0]):
            raise ConfigError(f"the program itself cannot come from the job, got {words[0]!r}")
        for word in words:
            left = PLACE.sub("", word) if not MANY.fullmatch(word) else ""
            if "{" in left or "}" in left:
                raise ConfigError(f"{word!r} has braces that name no argument; write {{name}}, or {{names*}} alone")
        self.words = list(words)
        self.options = frozenset(options)
        """Arguments that may be options, so begin with a dash."""
        self.many = {match[1] for word in words if (match := MANY.fullmatch(word))}
        self.names = list(dict.fromkeys(name for word in words for name in (MANY.findall(word) or PLACE.findall(word))))
        if unknown := self.options - set(self.names):
            raise ConfigError(f"the command has no argument {min(unknown)!r} that could be an option")

    def fill(self, values: Mapping[str, Any]) -> list[str]:
        """The command for these arguments, or INVALID_SPEC."""
        made: list[str] = []
        for word in self.words:
            if match := MANY.fullmatch(word):
                each = [_word(match[1], value) for value in values[match[1]]]
                for text in each:
                    self._check(text, [match[1]], made)
                made += each
                continue
            names = PLACE.findall(word)
            text = PLACE.sub(lambda place: _word(place[1], values[place[1]]), word)
            if names and not word.startswith("-"):
                self._check(text, names, made)
            made.append(text)
        return made

    def _check(self, text: str, names: Sequence[str], before: Sequence[str]) -> None:
        """An argument must not turn into an option; after ``--`` none can."""
        if text.startswith("-") and "--" not in before and not self.options.intersection(names):
            raise coded("INVALID_SPEC", f"argument {names[0]!r} begins with a dash, so it would be an option: {text!r}")


def _word(name: str, value: Any) -> str:
    text = str(value)
    if "\0" in text:
        raise coded("INVALID_SPEC", f"argument {name!r} holds a NUL character")
    return text
