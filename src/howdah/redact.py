"""Redaction: hides secrets in stored error texts, and in jobs shown by the CLI, the dashboard and the HTTP API."""

from __future__ import annotations

import json
import logging
import math
import re
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from howdah.errors import ConfigError
from howdah.secrets import MASK, leaves, masked

LONGEST_NAME = 200
LONGEST_MESSAGE = 2_000
LONGEST_TRACEBACK = 8_000
SHORTEST_SECRET = 3
"""Characters of a secret that is looked for in texts: a shorter one is in every text."""
HIDDEN_IN_WORDS = 6
"""Characters of a secret from which on it is hidden inside of words, too."""
MARGIN = 8_192
"""Characters scrubbed beyond what is kept of a long text: at a cut, half a secret could not be recognised."""
MOST_WORK = 50_000_000
"""Secrets times characters that are compared; beyond, nothing of a text is shown."""

handler_secrets: ContextVar[Sequence[str]] = ContextVar("howdah_secrets", default=())
"""Secrets of the running handler, as :func:`spellings`, which are redacted in all stored text."""

_ADDRESS = re.compile(r"://[^\s?]*")
_IN_ADDRESS = re.compile(r"(://[^\s:/@]*):[^\s?]+@")
_SECRETS = [
    (
        re.compile(
            r"""(?ix)( (?:password|passwd|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|authorization)
            ["']? \s* [=:] \s* (?:bearer\s+|basic\s+)? ["']? ) (?!…[)\s]) [^\s"',;)}&]+"""
        ),
        r"\1***",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"), r"\1 ***"),
    (
        re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{16,}"),
        "***",
    ),
]


def scrub(text: str) -> str:
    """Hide what looks like a secret.

    >>> scrub("cannot reach postgresql://me:hunter2@db/app with token=abc")
    'cannot reach postgresql://me:***@db/app with token=***'
    >>> scrub("name another with Columns(lease_token=…)")  # advice of our own, not a value
    'name another with Columns(lease_token=…)'
    """
    if secrets := handler_secrets.get():
        text = hide(text, secrets)
    text = _ADDRESS.sub(_without_password, text)
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return storable(text)


def storable(text: str) -> str:
    """``text`` without what PostgreSQL cannot store: NUL characters and lone surrogates.

    >>> storable("a\\0b\\ud800")
    'a\\\\0b?'
    """
    return text.replace("\0", "\\0").encode("utf-8", "replace").decode()


def keep(text: str, longest: int) -> str:
    """``text`` as it can be stored: secrets hidden, at most ``longest`` characters, the middle cut out of a long one.

    It is cut before it is scrubbed, so a text without end costs no more than a long one.

    >>> keep("token=abc " + "x" * 100_000, 100)[:30]
    'token=*** xxxxxxxxxxxxxxxxxxxx'
    """
    text = str.__str__(text)  # a subclass may have code of its own
    half = (longest - 40) // 2
    margin = max((len(secret) for secret in handler_secrets.get()), default=0) + MARGIN
    if len(text) <= 2 * (half + margin):
        return shorten(scrub(text), longest)
    first, last = scrub(text[: half + margin]), scrub(text[-half - margin :])
    first, last = first[: max(0, len(first) - margin)][:half], last[margin:][-half:]
    return f"{first}\n… {len(text) - len(first) - len(last)} characters cut …\n{last}"


def _without_password(address: re.Match[str]) -> str:
    # up to the last @ only: beyond it every :// would be tried in vain, to the end, and texts may be hostile
    text, end = address[0], address[0].rfind("@") + 1
    return _IN_ADDRESS.sub(r"\1:***@", text[:end]) + text[end:]


def spellings(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return the forms of secrets in a text: plain, escaped, and line by line; the longest first."""
    found = set()
    for secret in secrets:
        for each in (secret, *secret.splitlines()):
            found |= {each, each.strip(), quote(each, ""), quote_plus(each)}
            found |= {repr(each)[1:-1], ascii(each)[1:-1], repr(each.encode())[2:-1]}
            found |= {json.dumps(each)[1:-1], json.dumps(each, ensure_ascii=False)[1:-1]}
    return tuple(sorted((each for each in found if len(each) >= SHORTEST_SECRET), key=lambda each: (-len(each), each)))


def hide(text: str, secrets: Sequence[str]) -> str:
    """Hide secrets, given as their :func:`spellings`.

    >>> hide("card 4111-1111 with 737 refused, code 17370", spellings(["4111-1111", "737"]))
    'card *** with *** refused, code 17370'
    """
    if len(text) * len(secrets) > MOST_WORK:
        return "***"
    for secret in secrets:
        if secret in text:
            word = re.escape(secret)
            text = re.sub(word if len(secret) >= HIDDEN_IN_WORDS else rf"(?<!\w){word}(?!\w)", "***", text)
    return text


def shorten(text: str, longest: int) -> str:
    """Cut the middle out of a long text: its beginning and its end say most."""
    if len(text) <= longest:
        return text
    keep = (longest - 40) // 2
    return f"{text[:keep]}\n… {len(text) - 2 * keep} characters cut …\n{text[-keep:]}"


def describe(error: BaseException) -> tuple[str, str, str]:
    """Class, message and traceback of an error, scrubbed and bounded; no local variables."""
    return *class_and_message(error), traceback_of(error)


def class_and_message(error: BaseException) -> tuple[str, str]:
    """Class and message of an error, scrubbed and bounded; most of the work of :func:`describe` is the traceback."""
    # whatever its own code raises, SystemExit too: an error that cannot be described is an error all the same
    try:
        kind = storable(shorten(str.__str__(type(error).__qualname__), LONGEST_NAME))
    except BaseException:
        kind = "(its class has no name)"
    return kind, keep(message_of(error), LONGEST_MESSAGE)


def traceback_of(error: BaseException) -> str:
    """Traceback of an error, scrubbed and bounded."""
    try:
        lines = traceback.format_exception(type(error), error, user_frames(error.__traceback__), limit=50)
    except BaseException:
        lines = ["(its traceback cannot be shown)"]
    return keep("".join(lines), LONGEST_TRACEBACK)


def message_of(error: object) -> str:
    """The message of an error, or the text of another value, as long as it is; never raises."""
    try:
        return str(error)
    except BaseException:
        return "(its message cannot be shown)"


def user_frames(tb: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that is the user's own."""
    start = tb
    while tb is not None and tb.tb_frame.f_globals.get("__name__", "").startswith(
        ("howdah.", "howdah_agent.", "concurrent.", "asyncio.")
    ):
        tb = tb.tb_next
    return tb or start


log = logging.getLogger("howdah")

KEYS = r"password|passwd|secret|token|api[_-]?key|authorization|cookie"
"""Keys whose values are not shown, whatever their letters' case."""
DEEPEST = 200

Hook = Callable[[str, str, Any], Any]
"""Given the kind of a job, which part of it (args, meta, result, error, message, traceback) and what would be shown of
that; returns what is shown instead."""


class Redact:
    """Hides secrets: marked arguments, values of certain keys, texts that look like secrets, and what a hook hides."""

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
        return self._call_hook(kind, part, self._value(masked(value, secrets), DEEPEST))

    def text(self, text: str | None, secrets: Sequence[str] = (), *, kind: str = "", part: str = "error") -> str | None:
        """Return a text that may be shown; ``secrets``: their :func:`spellings`, which it must not contain."""
        if text is None:
            return None
        shown = self._call_hook(kind, part, scrub(hide(text, secrets)))
        return shown if shown is None or isinstance(shown, str) else str(shown)

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

    def _call_hook(self, kind: str, part: str, value: Any) -> Any:
        if self.hook is None or value is None:
            return value
        try:
            return self.hook(kind, part, value)
        except Exception as error:
            if not self._failed:
                log.error("redact failed on %s of %s (%s); it is not shown", part, kind, type(error).__name__)
            self._failed = True
            return MASK


def secret_spellings(value: Any, secrets: Sequence[str]) -> tuple[str, ...]:
    """Return the forms in which the secrets among these arguments may appear in a text."""
    return spellings(leaves(value, secrets)) if secrets else ()


TOO_DEEP = "(nested too deeply to be displayed)"


def readable_json(data: bytes | str) -> Any:
    """Return JSON values for display, also if Python cannot hold them all: other programs write such JSON.

    A number out of range becomes a text. Values, not the text of the JSON: secrets are hidden by their keys.

    >>> readable_json(b'{"n": 1e999, "s": "x"}'), readable_json("not JSON"), readable_json("[" * 5000 + "]" * 5000)
    ({'n': '1e999', 's': 'x'}, 'not JSON', '(nested too deeply to be displayed)')
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    try:
        return _encodable(json.loads(text, parse_float=_finite, parse_int=_short))
    except RecursionError:
        return TOO_DEEP
    except ValueError:
        return storable(text)


def _finite(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def _short(text: str) -> int | str:
    return int(text) if len(text) < 19 else text


def _encodable(value: Any) -> Any:
    """Replace lone surrogates, which cannot be sent to a browser."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [_encodable(each) for each in value]
    if isinstance(value, dict):
        return {storable(key): _encodable(each) for key, each in value.items()}
    return value


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def without_controls(text: str) -> str:
    r"""Escape control characters, which a terminal would execute: ESC, and C1, the 8-bit forms of its sequences.

    >>> without_controls("a\x1b]0;title\x07\x9b2J b\n")
    'a\\x1b]0;title\\x07\\x9b2J b\n'
    """
    return text.translate(_CONTROLS)
