"""Names and defaults of options on the pages are those of the code."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import typing
from pathlib import Path
from typing import Any

import click
import pytest

import howdah
from howdah.cli import LAZY, main
from howdah.cli.parameters import Flag
from howdah.events.consumer import ConsumerOptions, ConsumerSettings
from howdah.table.options import TableOptions, TableSettings
from howdah.webhooks.webhook import Webhook, WebhookSettings

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
NONE = inspect.Parameter.empty
"""In place of a default, where there is none."""


def page(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


SIGNATURES = re.findall(r"^### `([\w.]+)\((.*)\)(?: -> .*)?`$", page("python.md"), re.MULTILINE)


def fields(cls: Any) -> dict[str, Any]:
    """The fields of a class with their defaults."""
    found = {field.name: field for field in dataclasses.fields(cls)}
    made = {name: f.default_factory() for name, f in found.items() if callable(f.default_factory)}
    plain = {name: f.default if f.default is not dataclasses.MISSING else NONE for name, f in found.items()}
    return plain | made


def parameters(name: str) -> dict[str, Any]:
    """The parameters of a function or class with their defaults."""
    if name == "app.consumer":
        return {"name": NONE} | fields(ConsumerOptions)
    found: Any = getattr(howdah.Howdah, name.removeprefix("app.")) if name.startswith("app.") else getattr(howdah, name)
    if dataclasses.is_dataclass(found):
        return fields(found)
    signature = inspect.signature(found)
    return {each.name: each.default for each in signature.parameters.values() if each.name != "self"}


def same(shown: str, value: Any) -> bool:
    """Whether a page shows this default; what is no literal there cannot be compared."""
    try:
        return repr(value) == "<factory>" or bool(ast.literal_eval(shown) == value)
    except (SyntaxError, ValueError):
        return True


@pytest.mark.parametrize(
    ("name", "text"), [each for each in SIGNATURES if each[1] != "table, *, …"], ids=lambda each: each[:40]
)
def test_a_signature_of_the_reference_is_that_of_the_code(name, text):
    [function] = ast.parse(f"def f({text.replace('…', '...')}): pass").body
    assert isinstance(function, ast.FunctionDef)
    args = function.args
    given = [NONE] * (len(args.args) - len(args.defaults)) + [ast.unparse(each) for each in args.defaults]
    shown = dict(zip([each.arg for each in args.args], given, strict=True))
    shown |= {each.arg: NONE for each in (args.vararg,) if each}
    keywords = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    shown |= {each.arg: ast.unparse(default) if default else NONE for each, default in keywords}
    shown |= {each.arg: NONE for each in (args.kwarg,) if each}
    found = parameters(name)

    assert list(shown) == list(found)
    for parameter, default in shown.items():
        assert (default is NONE) == (found[parameter] is NONE), parameter
        assert default in (NONE, "...") or same(default, found[parameter]), parameter


def test_there_are_signatures():
    assert {name for name, _ in SIGNATURES} >= {"Howdah", "WorkerOptions", "Retention", "Backoff", "app.consumer"}


@pytest.mark.parametrize(
    ("name", "first", "cls"),
    [("tables.md", "table", TableOptions), ("events.md", "only", ConsumerOptions)],
)
def test_a_table_of_the_reference_has_the_options_of_the_code(name, first, cls):
    table = page(name)[page(name).index(f"| `{first}` |") :].partition("\n\n")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\|", table, re.MULTILINE))
    found = fields(cls)

    assert list(shown) == list(found)
    for option, default in shown.items():
        number = re.match(r"[\d.]+(?=$|:)", default)
        assert number is None or float(number[0]) == found[option], option
        assert default != "no" or found[option] is False, option


@pytest.mark.parametrize(
    ("settings", "cls", "besides"),
    [
        (TableSettings, TableOptions, {"table"}),
        (ConsumerSettings, ConsumerOptions, set()),
        (WebhookSettings, Webhook, {"url"}),
    ],
)
def test_what_a_decorator_takes_are_the_options(settings, cls, besides):
    taken, found = typing.get_type_hints(settings), typing.get_type_hints(cls)

    assert list(taken) == [field.name for field in dataclasses.fields(cls) if field.name not in besides]
    if settings is not ConsumerSettings:  # takes classes of events where the options have their names
        assert taken == {name: found[name] for name in taken}


def test_the_page_of_the_command_line_says_which_commands_take_no_database():
    def takes(name: str) -> bool:
        found = main.get_command(click.Context(main), name)
        return any(isinstance(each, Flag) and each.declared.key == "dsn" for each in found.params) or (
            isinstance(found, click.Group)
        )

    [sentence] = re.findall(r"Every command except (.*?) takes `--dsn`", page("cli.md"), re.DOTALL)

    assert sorted(re.findall(r"`(\w+)`", sentence)) == sorted(name for name in LAZY if not takes(name))
