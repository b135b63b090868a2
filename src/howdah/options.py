"""Declares options: one dataclass field each, from which TOML, environment, flags, help and reference are made.

A class of options is a frozen dataclass whose fields are made by :func:`option` and which calls :func:`check` in
``__post_init__``. ``howdah.config`` reads its values from ``howdah.toml`` and the environment,
``howdah.cli.parameters`` makes flags of it, and ``scripts/option-tables`` writes the tables of the reference.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from howdah.errors import ConfigError
from howdah.option_types import OptionType


class Given(NamedTuple):
    """The value of an option, and where it was given: a key of a file, a variable or a flag."""

    value: Any
    source: str


class OptionError(ConfigError):
    """Options whose values cannot be used, or not together; ``names`` are their names in the class."""

    def __init__(self, message: str, *names: str) -> None:
        super().__init__(message)
        self.names = names


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option: the values given to :func:`option`, and its name in its class."""

    default: Any
    type: OptionType
    help: str
    """One sentence, for ``--help`` and the reference."""
    flags: tuple[str, ...] = ()
    """``-c``, ``--concurrency``; of a switch also ``--x/--no-x``; none if it has no flag."""
    off: bool = False
    """True if its flag turns a switch off."""
    alias: str = ""
    """Another name of the key and the variable."""
    also: str = ""
    """Further variables, by which it is given if its own is not set."""
    shown: str = ""
    """The default in words, where the value itself does not say it."""
    secret: bool = False
    """True if its value must not be shown."""
    one_run: bool = False
    """True if it is about one run of a command: a flag, without a key and a variable."""
    name: str = ""
    section: str = ""

    @property
    def key(self) -> str:
        """Its name in ``howdah.toml``."""
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return variable(self.key)

    @property
    def keys(self) -> list[str]:
        """Its names in ``howdah.toml``, the first being the usual one."""
        names = (self.name, self.alias) if self.alias else (self.name,)
        return [] if self.one_run else [f"{self.section}.{name}" if self.section else name for name in names]

    @property
    def default_text(self) -> str:
        """The default as people are shown it; empty if there is none."""
        if self.shown or self.default in (None, dataclasses.MISSING):
            return self.shown
        return self.type.show(self.default)

    def read(self, value: Any) -> Any:
        """Return the value that TOML has as ``value``."""
        value = self.type.read(value)
        self.type.check(value)
        return value

    def parse(self, text: str) -> Any:
        """Return the value that a variable or a flag has as ``text``."""
        value = self.type.parse(text)
        self.type.check(value)
        return value

    def gather(self, texts: Sequence[str]) -> Any:
        """Return the value that a repeated flag has as ``texts``."""
        value = self.type.gather(texts)
        self.type.check(value)
        return value


def option(
    default: Any,
    type: OptionType,
    help: str,
    flags: str = "",
    *,
    off: bool = False,
    alias: str = "",
    also: str = "",
    shown: str = "",
    secret: bool = False,
    one_run: bool = False,
) -> Any:
    """Declare an option of a dataclass, see :class:`Option`; spaces separate ``flags``, the default ``...`` is none."""
    value = dataclasses.MISSING if default is ... else default
    declared = Option(
        default=value,
        type=type,
        help=help,
        flags=tuple(flags.split()),
        off=off,
        alias=alias,
        also=also,
        shown=shown,
        secret=secret,
        one_run=one_run,
    )
    made: dict[str, Any] = {"repr": not secret, "metadata": {"option": declared}}
    if isinstance(value, dict | list):
        return dataclasses.field(default_factory=value.copy, **made)
    return dataclasses.field(default=value, **made)


def options_of(cls: type) -> tuple[Option, ...]:
    """Return the options of a class, in order. ``SECTION`` of the class names their table in ``howdah.toml``."""
    declaring: Any = cls
    return _options_of(declaring)


@functools.cache
def _options_of(cls: type) -> tuple[Option, ...]:
    section = getattr(cls, "SECTION", "")
    return tuple(
        dataclasses.replace(field.metadata["option"], name=field.name, section=section)
        for field in dataclasses.fields(cls)
        if "option" in field.metadata
    )


def check(options: Any) -> None:
    """Raise :class:`OptionError` for the first option whose value cannot be used."""
    for each in options_of(options.__class__):
        value = getattr(options, each.name)
        if value is None and each.default is None:
            continue
        try:
            each.type.check(value)
        except ConfigError as error:
            raise OptionError(named(each.key, error), each.name) from None


def named(name: str, error: ConfigError) -> str:
    """Put the name of an option before the description of what is wrong with its value.

    >>> named("slots", ConfigError("must be above zero, got 0")), named("poll", ConfigError("'x' is not a duration"))
    ('slots must be above zero, got 0', "poll: 'x' is not a duration")
    """
    return f"{name} {error}" if str(error).startswith("must ") else f"{name}: {error}"


def variable(key: str) -> str:
    """Return the environment variable of a key.

    >>> variable("serve.port")
    'HOWDAH_SERVE_PORT'
    """
    return f"HOWDAH_{key.upper().replace('.', '_')}"
