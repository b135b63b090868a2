"""Parameters of commands: flags of declared options, ids, positions in the log, times."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from howdah.errors import ConfigError
from howdah.option_types import Choice, Duration, OptionType, Switch, seconds
from howdah.options import Given, Option, named, options_of

T = TypeVar("T")
LONGEST_RANGE = 100_000
"""Ids that may be given at once."""
LARGEST_POSITION = 2**63 - 1


class Value(click.ParamType[Any]):
    """The text of a flag, read and checked as the type of an option does."""

    def __init__(self, type: OptionType) -> None:
        self.name = type.name
        self._type = type

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse the text."""
        try:
            read = self._type.parse(value)
            self._type.check(read)
            return read
        except ConfigError as error:
            self.fail(named(param.name, error) if param and param.name else str(error), param, ctx)


class Flag(click.Option):
    """The flag of a declared option."""

    def __init__(self, names: list[str], *, declared: Option, **more: Any) -> None:
        if isinstance(declared.type, Switch):
            more["is_flag"] = True
        elif isinstance(declared.type, Choice):
            more["type"] = click.Choice(declared.type.values, case_sensitive=False)
        elif declared.type.several:
            more |= {"metavar": declared.type.metavar, "multiple": True}
        else:
            more |= {"metavar": declared.type.metavar, "type": Value(declared.type)}
        self.declared = declared
        super().__init__(names, help=help_of(declared), **more)

    def given(self, ctx: click.Context) -> Given | None:
        """Return the value that the command line has for it, if any."""
        declared = self.declared
        if ctx.get_parameter_source(declared.name) is not ParameterSource.COMMANDLINE:
            return None
        value = ctx.params[declared.name]
        if declared.off:
            value = not value
        elif declared.type.several:
            try:
                value = declared.gather(value)
            except ConfigError as error:
                raise click.BadParameter(named(declared.name, error), ctx, self) from None
        return Given(value, declared.flags[-1].partition("/")[0])


def help_of(option: Option) -> str:
    """Return the help sentence, with the variable and the default.

    >>> from howdah.option_types import Duration
    >>> help_of(Option(name="poll", default=5.0, type=Duration(), help="Longest wait.", flags=("--poll",)))
    'Longest wait.  [env: HOWDAH_POLL; default: 5s]'
    """
    facts = ["may be repeated"] if option.type.several else []
    if not option.one_run:
        facts.append(f"env: {', '.join(filter(None, (option.variable, option.also)))}")
    if option.default_text and not (option.one_run and option.default is False):
        facts.append(f"default: {option.default_text}")
    return f"{option.help}  [{'; '.join(facts)}]" if facts else option.help


def flags_of(*classes: type, only: Collection[str] | None = None) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a command the flags of these classes of options, or of ``only`` some of their options.

    Their values are not passed to the command: :func:`given_flags` returns them.
    """
    options = [
        each for cls in classes for each in options_of(cls) if each.flags and (only is None or each.name in only)
    ]
    names = {each.name for each in options}

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(command)
        def wrapped(*args: Any, **values: Any) -> T:
            return command(*args, **{name: value for name, value in values.items() if name not in names})

        decorated: Callable[..., T] = wrapped
        for each in reversed(options):
            decorated = click.option(*each.flags, each.name, cls=Flag, declared=each)(decorated)
        return decorated

    return decorate


def given_flags(ctx: click.Context) -> dict[str, Given]:
    """Return the options that the command line has flags of, by key."""
    flags = [each for each in ctx.command.params if isinstance(each, Flag)]
    return {flag.declared.key: given for flag in flags if (given := flag.given(ctx)) is not None}


def read_ids(words: Sequence[str], what: str = "job id") -> list[int]:
    """Parse ids and ranges of ids.

    >>> read_ids(["5", "7", "10-12"])
    [5, 7, 10, 11, 12]
    """
    ids: dict[int, None] = {}
    for word in ",".join(words).replace(" ", ",").split(","):
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", word)
        if match is None:
            raise click.UsageError(f"{word!r} is not a {what}; write 7 or 10-20")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise click.UsageError(f"the range {word} runs backwards; write {last}-{first}")
        if len(ids) + last - first >= LONGEST_RANGE:
            raise click.UsageError(f"{word} is too much at once; {LONGEST_RANGE:,} ids are allowed")
        ids.update(dict.fromkeys(range(first, last + 1)))
    return list(ids)


class Position(click.ParamType[int]):
    """A position in the log, or the version of a stream."""

    name = "position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse the text."""
        text = str(value)
        if not text.isdecimal() or int(text) > LARGEST_POSITION:
            self.fail(f"{text!r} is not a position; write a number from 0 on", param, ctx)
        return int(text)


class MomentType(click.ParamType[datetime]):
    """A time with its zone, or how long ago: 2030-01-31T12:00:00Z, 90s, 24h, 14d."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Parse the text."""
        if isinstance(value, datetime):
            return value
        try:
            return datetime.now(UTC) - timedelta(seconds=seconds(value))
        except (ConfigError, OverflowError):
            pass
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            found = None
        if found is None or found.tzinfo is None:
            self.fail(
                f"{value!r} is no moment; write a time with its zone, as 2030-01-31T12:00:00Z, or how long ago, as 24h",
                param,
                ctx,
            )
        return found


DURATION = Value(Duration())
"""Seconds, or a number with a unit: 90s, 15m, 24h, 14d."""
POSITION = Position()
MOMENT = MomentType()
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
