"""Makes flags of declared options."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from howdah.errors import ConfigError
from howdah.option_types import Choice, OptionType, Switch
from howdah.options import Given, Option, named, options_of

T = TypeVar("T")


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
