"""Types of options: how their values are read from TOML and text, checked and shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from howdah.errors import ConfigError

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def seconds(text: str | float) -> float:
    """Read a duration: seconds, or a number with a unit.

    >>> seconds("90s"), seconds("15m"), seconds("14d"), seconds("1h30m"), seconds("2.5")
    (90.0, 900.0, 1209600.0, 5400.0, 2.5)
    """
    if isinstance(text, str):
        compact = text.strip().lower().replace(" ", "")
        if re.fullmatch(r"(\d+(\.\d+)?(ms|[smhdw]))+", compact):
            parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[smhdw])", compact)
            return sum(float(number) * UNITS[unit] for number, unit in parts)
        if re.fullmatch(r"\d+(\.\d+)?", compact):
            return float(compact)
    elif isinstance(text, int | float) and not isinstance(text, bool) and 0 <= text < float("inf"):
        return float(text)
    raise ConfigError(f"{text!r} is not a duration; write 90s, 15m, 24h or 14d")


def duration(value: float) -> str:
    """Write seconds as a person would.

    >>> duration(0.2), duration(30.0), duration(90), duration(900), duration(14 * 86400), duration(0)
    ('200ms', '30s', '90s', '15m', '14d', '0s')
    """
    if value and value < 1 and value * 1000 == round(value * 1000):
        return f"{value * 1000:g}ms"
    for unit in ("d", "h", "m"):
        if value and value % UNITS[unit] == 0 and (unit != "d" or value >= 2 * UNITS[unit]):
            return f"{value / UNITS[unit]:g}{unit}"
    return f"{value:g}s"


class OptionType:
    """The type of an option: how its values are read, checked and shown. Failures raise :class:`ConfigError`."""

    name: ClassVar[str] = "text"
    """Name of the type in the reference."""
    metavar: str = "TEXT"
    several: ClassVar[bool] = False
    """True if its flag may be repeated; :meth:`gather` makes one value of the texts."""

    @property
    def words(self) -> str:
        """Description of the values in the reference."""
        return self.name

    def read(self, value: Any) -> Any:
        """Return the value that TOML has as ``value``."""
        if not isinstance(value, str):
            raise ConfigError(f"must be text, got {type(value).__name__}")
        return self.parse(value)

    def parse(self, text: str) -> Any:
        """Return the value that a variable or a flag has as ``text``."""
        return text

    def gather(self, texts: Sequence[str]) -> Any:
        """Return the value of a repeated flag."""
        return list(texts)

    def check(self, value: Any) -> None:
        """Raise :class:`ConfigError` if ``value`` cannot be used."""

    def show(self, value: Any) -> str:
        """Return ``value`` as it may be written in a variable or a flag."""
        return str(value)


@dataclass(frozen=True, kw_only=True)
class Text(OptionType):
    """Any text; ``good`` raises :class:`ConfigError` for text that cannot be used."""

    metavar: str = "TEXT"
    good: Callable[[str], object] | None = None

    @property
    def words(self) -> str:
        """Description of the text."""
        return {"FILE": "file", "URL": "URL"}.get(self.metavar, self.name)

    def check(self, value: Any) -> None:
        """Ask ``good``."""
        if not isinstance(value, str):
            raise ConfigError(f"must be text, got {type(value).__name__}")
        if self.good is not None:
            self.good(value)


@dataclass(frozen=True, kw_only=True)
class Number(OptionType):
    """A number within bounds."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    metavar: str = "N"
    name: ClassVar[str] = "number"

    @property
    def words(self) -> str:
        """Its name and its bounds."""
        if self.least is not None and self.most is not None:
            return f"{self.name}, {self.show(self.least)} to {self.show(self.most)}"
        if self.above is not None:
            return f"{self.name}, above {self.above:g}"
        return f"{self.name}, at least {self.show(self.least)}" if self.least else self.name

    def read(self, value: Any) -> Any:
        """Take numbers only: TOML has types."""
        self._must_be_number(value)
        return value

    def parse(self, text: str) -> Any:
        """Read a number."""
        try:
            return float(text)
        except ValueError:
            raise ConfigError(f"must be a number, got {text!r}") from None

    def check(self, value: Any) -> None:
        """Check the bounds; NaN is outside of any."""
        self._must_be_number(value)
        if self.above is not None and not value > self.above:
            raise ConfigError(f"must be above {'zero' if self.above == 0 else self.show(self.above)}, got {value!r}")
        if self.least is not None and self.most is not None and not self.least <= value <= self.most:
            raise ConfigError(f"must be from {self.show(self.least)} to {self.show(self.most)}, got {self.show(value)}")
        if self.least == 0 and not value >= 0:
            raise ConfigError(f"must not be negative, got {value!r}")
        if self.least is not None and not value >= self.least:
            raise ConfigError(f"must be at least {self.show(self.least)}, got {self.show(value)}")

    def show(self, value: Any) -> str:
        """Write it without needless digits."""
        return f"{value:g}" if isinstance(value, float) else str(value)

    def _must_be_number(self, value: Any) -> None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ConfigError(f"must be a number, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class Integer(Number):
    """A whole number within bounds."""

    name: ClassVar[str] = "integer"

    def parse(self, text: str) -> Any:
        """Read a whole number."""
        if not re.fullmatch(r"-?\d{1,18}", text.strip()):
            raise ConfigError(f"must be a whole number, got {text!r}")
        return int(text)

    def _must_be_number(self, value: Any) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(f"must be a whole number, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class Bytes(Integer):
    """A size in bytes."""

    above: float | None = 0
    metavar: str = "BYTES"
    name: ClassVar[str] = "bytes"


@dataclass(frozen=True, kw_only=True)
class Duration(Number):
    """A time in seconds, which may be written with units: ``90s``, ``15m``."""

    metavar: str = "DURATION"
    name: ClassVar[str] = "duration"

    def read(self, value: Any) -> Any:
        """Take seconds, or text with units."""
        return seconds(value)

    def parse(self, text: str) -> Any:
        """Take seconds, or text with units."""
        return seconds(text)

    def show(self, value: Any) -> str:
        """Write it with a unit."""
        return duration(value)


@dataclass(frozen=True, kw_only=True)
class Switch(OptionType):
    """True or false."""

    metavar: str = ""
    name: ClassVar[str] = "boolean"

    def read(self, value: Any) -> Any:
        """Take a boolean only: TOML has types."""
        self.check(value)
        return value

    def parse(self, text: str) -> Any:
        """Read a word."""
        if text.strip().lower() not in WORDS:
            raise ConfigError(f"must be true or false, got {text!r}")
        return WORDS[text.strip().lower()]

    def check(self, value: Any) -> None:
        """Accept nothing but a boolean."""
        if not isinstance(value, bool):
            raise ConfigError(f"must be true or false, got {value!r}")

    def show(self, value: Any) -> str:
        """Write it as TOML does."""
        return "true" if value else "false"


class Choice(OptionType):
    """One of some words, in any case of letters."""

    name = "choice"

    def __init__(self, *values: str) -> None:
        self.values = values
        self.metavar = "|".join(values)

    @property
    def words(self) -> str:
        """The words."""
        return ", ".join(self.values)

    def parse(self, text: str) -> Any:
        """Take the word in lower case."""
        self.check(text.lower())
        return text.lower()

    def check(self, value: Any) -> None:
        """Accept nothing but these words."""
        if value not in self.values:
            raise ConfigError(f"must be {' or '.join(map(repr, self.values))}, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class List(OptionType):
    """Several texts: a list in TOML, or one text with ``separator`` between them. A flag is repeated."""

    metavar: str = "NAME"
    separator: str = ","
    good: Callable[[str], object] | None = None
    name: ClassVar[str] = "list"
    several: ClassVar[bool] = True

    def read(self, value: Any) -> Any:
        """Take a list of texts, or one text."""
        return self.parse(value) if isinstance(value, str) else value

    def parse(self, text: str) -> Any:
        """Split it."""
        return [part.strip() for part in text.split(self.separator) if part.strip()]

    def check(self, value: Any) -> None:
        """Ask ``good`` about each."""
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise ConfigError(f"must be a list, got {value!r}")
        for each in value:
            if not isinstance(each, str):
                raise ConfigError(f"must be a list of texts, got {each!r} in it")
            if self.good is not None:
                self.good(each)

    def show(self, value: Any) -> str:
        """Join them."""
        return self.separator.join(value)
