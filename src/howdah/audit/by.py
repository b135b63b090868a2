"""By: who acts. Set where a person comes in, read where something is changed; nothing in between passes it on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import msgspec

Via = Literal["cli", "dashboard", "api", "code"]
LONGEST = 200


class By(msgspec.Struct, frozen=True):
    """Somebody, and the way they came in.

    >>> By("ada", "cli", "web-1")
    By(who='ada', via='cli', address='web-1')
    """

    who: str
    via: Via = "code"
    address: str | None = None
    """The machine they are at."""


CODE = By("code")
_acting: ContextVar[By] = ContextVar("howdah_acting", default=CODE)


@contextmanager
def acting_as(by: By) -> Iterator[None]:
    """What is changed inside, in this task and those it starts, is recorded as theirs.

    >>> with acting_as(By("ada", "dashboard")):
    ...     actor().who
    'ada'
    >>> actor().who
    'code'
    """
    token = _acting.set(by)
    try:
        yield
    finally:
        _acting.reset(token)


def actor() -> By:
    """Whoever acts here, in a form that fits the table."""
    by = _acting.get()
    return By(plain(by.who)[:LONGEST] or "nobody", by.via, plain(by.address)[:LONGEST] if by.address else None)


def plain(text: str) -> str:
    """What the server can store of a text."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
