"""Values that handlers return although they cannot be stored: their own code fails, or there is no JSON of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class UnreadableError(Exception):
    """An error whose message cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


class Dumps:
    """Raises this error when it is made JSON."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def model_dump(self, mode: str) -> object:
        raise self._error


class Proxy:
    """What frameworks return for the request at hand: outside of one even its class cannot be asked for."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("outside of a request")


class _Answers(type):
    def __getattr__(cls, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class Metaclass(metaclass=_Answers):
    """Its class raises when it is asked for an attribute."""


class Attributes:
    """Raises when it is asked for an attribute."""

    def __getattr__(self, name: str) -> Any:
        raise SystemExit(name)


def recursive() -> list[Any]:
    """A list that contains itself."""
    value: list[Any] = []
    value.append(value)
    return value


def deep() -> list[Any]:
    """Lists in lists, more than the stack holds."""
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


UNSTORABLE: dict[str, Callable[[], Any]] = {
    "an error without a message": lambda: Dumps(UnreadableError()),
    "SystemExit": lambda: Dumps(SystemExit(3)),
    "KeyboardInterrupt": lambda: Dumps(KeyboardInterrupt()),
    "GeneratorExit": lambda: Dumps(GeneratorExit()),
    "a group": lambda: Dumps(BaseExceptionGroup("two", [SystemExit(), ValueError()])),
    "a proxy": Proxy,
    "a metaclass": Metaclass,
    "attributes": Attributes,
    "NaN": lambda: float("nan"),
    "infinity inside": lambda: {"a": [float("-inf")]},
    "a lone surrogate": lambda: "\ud800",
    "NUL": lambda: ["a\0b"],
    "too many digits": lambda: 10**5000,
    "deep": deep,
    "recursive": recursive,
    "100 MB": lambda: "x" * 100_000_000,
    "no JSON": object,
}
"""Each is work that was done."""
RAW: dict[str, Callable[[], Any]] = {
    "no JSON at all": lambda: msgspec.Raw(b"garbage"),
    "no UTF-8": lambda: msgspec.Raw(b'"\xff"'),
    "too large a number": lambda: msgspec.Raw(b"1e999999"),
    "half a pair": lambda: msgspec.Raw(b'"\\ud800"'),
    "two values": lambda: msgspec.Raw(b'1, "outcome": "failed"'),
}
"""JSON by its own word, which only the database examines."""


def returns(what: str) -> Any:
    """Return one of them."""
    return (UNSTORABLE | RAW)[what]()


async def returns_later(what: str) -> Any:
    """The same as a coroutine."""
    return returns(what)
