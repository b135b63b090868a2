"""Redact: what people are shown of jobs, on the command line, the dashboard and over HTTP. What is kept stays so."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

from howdah.errors import ConfigError
from howdah.scrub import hide, scrub, spellings
from howdah.secret import MASK, leaves, masked

log = logging.getLogger("howdah")

KEYS = r"password|passwd|secret|token|api[_-]?key|authorization|cookie"
"""Keys whose values are not shown, whatever their letters' case."""
DEEPEST = 200

Hook = Callable[[str, str, Any], Any]
"""Given the kind of a job, which part of it (args, meta, result, error, message, traceback) and what would be shown of
that; returns what is shown instead."""


class Redact:
    """Hides what is secret: by its place, by the name of its key, by its look, and as the application says."""

    def __init__(self, keys: str = KEYS, hook: Hook | None = None) -> None:
        try:
            self._keys = re.compile(keys, re.IGNORECASE) if keys else None
        except re.error as error:
            raise ConfigError(f"{keys!r} is not a regular expression of keys: {error}") from None
        self.hook = hook
        self._failed = False

    def __call__(self, value: Any, secrets: Sequence[str] = (), *, kind: str = "", part: str = "args") -> Any:
        """A copy of JSON values that may be shown; ``secrets``: pointers to those that may not.

        >>> Redact()({"user": 7, "card": "4111", "http": [{"API_KEY": "k", "dsn": "pg://me:pw@db"}]}, ["/card"])
        {'user': 7, 'card': '***', 'http': [{'API_KEY': '***', 'dsn': 'pg://me:***@db'}]}
        """
        return self._ask(kind, part, self._value(masked(value, secrets), DEEPEST))

    def text(self, text: str | None, told: Sequence[str] = (), *, kind: str = "", part: str = "error") -> str | None:
        """A text that may be shown; ``told``: spellings of what it must not hold."""
        if text is None:
            return None
        said = self._ask(kind, part, scrub(hide(text, told)))
        return said if said is None or isinstance(said, str) else str(said)

    def _value(self, value: Any, depth: int) -> Any:
        if not depth:
            return MASK
        if isinstance(value, dict):
            return {
                key: MASK if item is not None and self._is_secret(key) else self._value(item, depth - 1)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._value(item, depth - 1) for item in value]
        return scrub(value) if isinstance(value, str) else value

    def _is_secret(self, key: str) -> bool:
        return self._keys is not None and self._keys.search(key) is not None

    def _ask(self, kind: str, part: str, value: Any) -> Any:
        if self.hook is None or value is None:
            return value
        try:
            return self.hook(kind, part, value)
        except Exception as error:
            if not self._failed:
                log.error("redact failed on %s of %s (%s); it is not shown", part, kind, type(error).__name__)
            self._failed = True
            return MASK


def told_in(value: Any, secrets: Sequence[str]) -> tuple[str, ...]:
    """How the secrets among these arguments may look in a text."""
    return spellings(leaves(value, secrets)) if secrets else ()
