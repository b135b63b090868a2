"""Every option is the same in howdah.toml, in the environment, as a flag, in ``--help`` and in the reference."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import typing
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from docs.option_tables import PAGES, TABLE, classes, written
from howdah import ConfigError, config
from howdah.cli import LAZY
from howdah.cli.parameters import Flag, given_flags
from howdah.option_types import Bytes, Choice, Duration, Integer, List, Number, Switch
from howdah.options import Option, options_of, variable
from howdah.settings import StartOptions
from howdah.webhooks.webhook import Webhook
from howdah_agent.sidecar.options import SidecarOptions

ALL = (*config.CLASSES, StartOptions, SidecarOptions)
COMMANDS = {
    "jobs": ("AppOptions",),
    "worker": ("AppOptions", "WorkerOptions", "ProcessOptions", "StartOptions"),
    "serve": ("AppOptions", "ServeOptions", "StartOptions"),
    "prune": ("AppOptions", "Retention"),
    "dev": ("AppOptions", "DevOptions"),
    "sidecar": ("SidecarOptions",),
}
"""The commands that have all flags of a class."""
EXAMPLES: dict[str, Any] = {
    "queues": "mail:10,default",
    "metrics": "127.0.0.1:9100",
    "server": "https://howdah.example.com",
    "serve.password": "a long password",
    "serve.read_password": "another password",
    "serve.trace_url": "https://tempo.example.com/trace/{trace}",
    "sidecar.agent": "claude -p",
    "sidecar.commands": {"feature": ["sdlc", "new feature"], "fix": ["sdlc", "fix"]},
    "sidecar.allow": ["https://git.example.com/team", "/srv/git"],
    "sidecar.git_config": __file__,
    "sidecar.author": "ci <ci@example.com>",
    "sidecar.token": "0123456789abcdef",
    "sidecar.host": "::1",
}
"""Values of options that do not take any value of their type."""
ONLY_IN_PYTHON = {("WorkerOptions", "limits")}
OPTIONS = [(cls, option) for cls in ALL for option in options_of(cls)]
KEYS = [(cls, option, key) for cls, option in OPTIONS for key in option.keys]
FLAGS = [
    (command, option)
    for command, names in COMMANDS.items()
    for cls in ALL
    if cls.__name__ in names
    for option in options_of(cls)
    if option.flags
]


def label(value: Any) -> str:
    return value.key if isinstance(value, Option) else getattr(value, "__name__", str(value))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, and an environment that says nothing."""
    for name in list(os.environ):
        if name.startswith(("HOWDAH_", "DATABASE_URL", "PG")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def example(option: Option) -> Any:
    """A value of the option that is not its default, as TOML has it."""
    if option.key in EXAMPLES:
        return EXAMPLES[option.key]
    match option.type:
        case Duration():
            return "400d" if option.type.least else "7h"
        case Bytes() | Integer():
            return (option.default or 8080) + 1
        case Number():
            return option.default + 1.5
        case Switch():
            return not option.default
        case Choice():
            return next(value for value in option.type.values if value != option.default)
        case List():
            return ["one", "two"]
        case _:
            return "something"


def in_toml(option: Option, key: str) -> str:
    return f"{key} = {toml(example(option))}\n"


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml(each)}" for name, each in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def in_text(option: Option) -> str:
    return option.type.show(option.read(example(option)))


def given(cls: type, key: str, flags: dict[str, Any] | None = None) -> Any:
    more = () if cls in config.CLASSES else (cls,)
    return config.load(None, *more).over(flags or {}).given.get(key)


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def command(name: str) -> click.Command:
    module, _, attribute = LAZY[name][0].partition(":")
    found: click.Command = getattr(importlib.import_module(module), attribute)
    return found


def words(option: Option) -> list[str]:
    """The flag of an option, with its example."""
    flag = option.flags[-1]
    if isinstance(option.type, Switch):
        return [flag.partition("/")[2] if "/" in flag and option.default else flag.partition("/")[0]]
    value = option.read(example(option))
    if isinstance(value, dict):
        return [word for line in option.type.show(value).splitlines() for word in (flag, line)]
    if option.type.several:
        return [word for each in option.type.show(value).split(",") for word in (flag, each)]
    return [flag, option.type.show(value)]


@pytest.mark.parametrize(("cls", "option", "key"), KEYS, ids=label)
def test_the_file_has_it(cls, option, key, folder):
    (folder / "howdah.toml").write_text(in_toml(option, key))

    found = given(cls, option.key)
    assert found.value == option.read(example(option)) != option.default
    assert found.source == f"{folder / 'howdah.toml'}: {key}"


@pytest.mark.parametrize(("cls", "option", "key"), KEYS, ids=label)
def test_the_environment_has_it_and_overrides_the_file(cls, option, key, folder, monkeypatch):
    (folder / "howdah.toml").write_text(in_toml(option, key))
    monkeypatch.setenv(variable(key), in_text(option))

    found = given(cls, option.key)
    assert found.value == option.read(example(option))
    assert found.source == ("the environment" if key == "dsn" else variable(key))


@pytest.mark.parametrize(("name", "option"), FLAGS, ids=label)
def test_the_command_line_has_it_and_overrides_both(name, option, folder, monkeypatch):
    [cls] = [each for each in ALL if option in options_of(each)]
    if not option.one_run:
        (folder / "howdah.toml").write_text(in_toml(option, option.key))
        monkeypatch.setenv(option.variable, in_text(option))
    with command(name).make_context(name, words(option)) as ctx:
        flags = given_flags(ctx)

    found = given(cls, option.key, flags)
    assert found.value == option.read(example(option))
    assert found.source in [flag.partition("/")[0] for flag in option.flags]


@pytest.mark.parametrize(("cls", "option", "key"), KEYS, ids=label)
def test_what_cannot_be_is_refused_with_its_source(cls, option, key, folder, monkeypatch):
    (folder / "howdah.toml").write_text(f"{key} = 1979-05-27\n")  # nothing is a date
    with pytest.raises(ConfigError) as raised:
        given(cls, option.key)
    assert str(raised.value).startswith(f"{folder / 'howdah.toml'}: {key}")


@pytest.mark.parametrize(("name", "option"), FLAGS, ids=label)
def test_help_explains_it(name, option):
    with click.Context(command(name), info_name=name, terminal_width=1000, max_content_width=1000) as ctx:
        text = ctx.get_help()
    flag = option.flags[-1].partition("/")[0]
    [line] = [" ".join(line.split()) for line in text.splitlines() if re.match(rf"  (-\w, )?{flag}( |$)", line)]

    assert option.help in line
    assert option.one_run or re.search(rf"\benv: {option.variable}\b", line)
    if option.default_text and option.default is not False:
        assert f"default: {option.default_text}]" in line
    if isinstance(option.type, Choice):
        assert f"[{'|'.join(option.type.values)}]" in line
    elif not isinstance(option.type, Switch):
        assert f" {option.type.metavar} " in line


@pytest.mark.parametrize(("cls", "option"), [*OPTIONS, *((Webhook, each) for each in options_of(Webhook))], ids=label)
def test_its_type_and_default_are_those_of_the_field(cls, option):
    hint = typing.get_type_hints(cls)[option.name]
    [field] = [each for each in dataclasses.fields(cls) if each.name == option.name]
    default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default

    if cls is not Webhook:
        value = option.read(example(option))
        assert plain(msgspec.convert(value, hint)) == plain(value)
    assert option.default == default
    if default is not dataclasses.MISSING:
        assert plain(msgspec.convert(default, hint)) == plain(default)
        assert option.shown or default is None or option.parse(option.default_text) == default
    assert re.fullmatch(r"[A-Z/].*\.", option.help), "a sentence"


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"jobs"}))
def test_a_command_has_no_flags_but_those_of_options(name):
    flags = [each.declared.key for each in command(name).params if isinstance(each, Flag)]
    others = {each.name for each in command(name).params if not isinstance(each, Flag)}
    passed_on = ["slots", "queues", "metrics"] if name == "dev" else []

    assert sorted(flags) == sorted([*passed_on, *(option.key for each, option in FLAGS if each == name)])
    assert others == {"config_file"} | ({"yes", "as_json"} if name == "prune" else set())


def test_every_field_is_an_option():
    fields = {(cls.__name__, field.name) for cls in ALL for field in dataclasses.fields(cls)}

    assert fields - {(cls.__name__, option.name) for cls, option in OPTIONS} == ONLY_IN_PYTHON


def test_no_two_options_have_the_same_key_or_variable():
    keys = [option.key for _, option in OPTIONS]
    variables = [variable(key) for _, option in OPTIONS for key in option.keys]

    assert sorted(keys) == sorted(set(keys))
    assert sorted(variables) == sorted(set(variables))


def test_the_reference_has_a_table_of_every_class():
    assert sorted(map(label, classes())) == sorted(map(label, (*ALL, Webhook)))


@pytest.mark.parametrize(
    "page", [page for page in sorted(PAGES.rglob("*.md")) if TABLE.search(page.read_text())], ids=lambda page: page.name
)
def test_the_tables_of_the_reference_are_those_of_the_options(page: Path):
    text = page.read_text(encoding="utf-8")

    assert text == written(text), "run scripts/option-tables"


@pytest.mark.parametrize(("cls", "option"), OPTIONS, ids=label)
def test_the_reference_explains_it(cls, option):
    flags = [f"`{each}`" for flag in option.flags for each in flag.split("/")]
    names = [f"`{option.key}`", f"`{option.variable}`"] if not option.one_run else flags
    rows = [row for page in PAGES.rglob("*.md") for row in page.read_text(encoding="utf-8").splitlines()]
    [row] = [row for row in rows if row.endswith(f"| {option.help} |") and all(name in row for name in names)]

    assert all(flag in row for flag in flags)
    assert f"| {option.type.words} |" in row
    assert option.default_text.replace("|", "\\|") in row


BETWEEN_PROCESSES = {"HOWDAH_SUPERVISOR", "HOWDAH_TELL_SUPERVISOR", "HOWDAH_JOB", "HOWDAH_ATTEMPT"}
"""Variables that Howdah sets for processes that it starts."""
ROOT = PAGES.parent


def mentioned(text: str) -> set[str]:
    return set(re.findall(r"\bHOWDAH_[A-Z]+(?:_[A-Z]+)*\b", text))


def test_every_variable_that_is_read_is_in_the_reference():
    folders = [ROOT / "src", ROOT / "agent" / "src"]
    files = [file for folder in folders for file in folder.rglob("*.py")]
    literals = {name for file in files for name in re.findall(r'"(HOWDAH_[A-Z_]+[A-Z])"', file.read_text())}

    assert literals - BETWEEN_PROCESSES <= mentioned((PAGES / "reference" / "settings.md").read_text()) | {
        "HOWDAH_SIDECAR_TOKEN"  # in the reference of the sidecar
    }


def test_every_variable_on_the_pages_is_read():
    pages = [ROOT / "README.md", *PAGES.rglob("*.md")]
    there = set().union(*(mentioned(page.read_text(encoding="utf-8")) for page in pages))
    known = {variable(key) for _, option, key in KEYS} | BETWEEN_PROCESSES
    elsewhere = "".join(
        file.read_text(errors="replace")
        for folder in ("src", "lab/src", "tests", "deploy", "scripts")
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and file.suffix not in (".pyc", ".png") and file != Path(__file__)
    )

    assert {name for name in there - known if name not in elsewhere and not name.startswith("HOWDAH_WEBHOOK_")} == set()


TOML = [
    (page.name, text)
    for page in [ROOT / "README.md", *sorted(PAGES.rglob("*.md"))]
    for text in re.findall(r"^```toml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize(("page", "text"), TOML, ids=[page for page, _ in TOML])
def test_settings_on_the_pages_can_be_read(page, text, folder, monkeypatch):
    if "[[webhook]]" in text:
        monkeypatch.setenv("HOWDAH_WEBHOOK_OPS_URL", "https://hooks.example.com/")  # as the page has it
    file = folder / ("pyproject.toml" if "[tool." in text else "howdah.toml")
    file.write_text(text)

    config.load(str(file), SidecarOptions)
