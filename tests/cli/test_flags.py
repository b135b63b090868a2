"""Flags made of declared options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click
import pytest
from click.testing import CliRunner

from howdah import ConfigError
from howdah.cli.parameters import flags_of, given_flags
from howdah.option_types import Choice, Duration, Integer, List, Switch, Text
from howdah.options import Given, check, option


def short(text: str) -> None:
    if len(text) > 3:
        raise ConfigError(f"must be short, got {text!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kettle:
    cups: int = option(2, Integer(least=1, most=10), "Cups.", "-c --cups", alias="mugs")
    wait: float = option(90.0, Duration(above=0), "How long to wait.", "--wait", one_run=True)
    whistle: bool = option(True, Switch(), "Whether to whistle.", "--silent", off=True)
    lid: bool = option(True, Switch(), "Close the lid.", "--lid/--no-lid")
    hurry: bool = option(False, Switch(), "Boil now.", "--hurry", one_run=True)
    tea: str = option("green", Choice("green", "black"), "Which tea.", "--tea")
    friends: Sequence[str] = option((), List(good=short), "Who comes.", "--friend", shown="none")
    code: str | None = option(None, Text(good=short), "What opens it.")

    def __post_init__(self) -> None:
        check(self)


@click.command()
@flags_of(Kettle)
@click.argument("room")
@click.pass_context
def boil(ctx: click.Context, room: str) -> None:
    """Boil water."""
    ctx.obj.update(given_flags(ctx))
    assert room == "kitchen"


def ran(*words: str) -> tuple[dict[str, Given], Any]:
    given: dict[str, Given] = {}
    result = CliRunner().invoke(boil, [*words, "kitchen"], obj=given, env={"COLUMNS": "200"})
    return given, result


def test_only_flags_on_the_command_line_are_given():
    given, result = ran()

    assert result.exit_code == 0, result.output
    assert given == {}


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (("-c", "3"), {"cups": Given(3, "--cups")}),
        (("--cups", "3"), {"cups": Given(3, "--cups")}),
        (("--wait", "15m"), {"wait": Given(900.0, "--wait")}),
        (("--silent",), {"whistle": Given(False, "--silent")}),
        (("--no-lid",), {"lid": Given(False, "--lid")}),
        (("--lid",), {"lid": Given(True, "--lid")}),
        (("--hurry",), {"hurry": Given(True, "--hurry")}),
        (("--tea", "Black"), {"tea": Given("black", "--tea")}),
        (("--friend", "ann", "--friend", "b,c"), {"friends": Given(["ann", "b,c"], "--friend")}),
    ],
)
def test_flags_have_the_values_of_their_options(words, given):
    assert ran(*words)[0] == given


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-c", "0"), "Invalid value for '-c' / '--cups': cups must be from 1 to 10, got 0"),
        (("--wait", "soon"), "Invalid value for '--wait': wait: 'soon' is not a duration"),
        (("--tea", "mint"), "Invalid value for '--tea'"),
        (("--friend", "anna"), "Invalid value for '--friend': friends must be short, got 'anna'"),
        (("--code", "x"), "No such option"),
    ],
)
def test_a_wrong_flag_is_named(words, message):
    _, result = ran(*words)

    assert result.exit_code == 2
    assert message in result.output


def test_help_has_the_sentence_the_variable_and_the_default():
    lines = [
        " ".join(line.split()) for line in CliRunner().invoke(boil, ["--help"], terminal_width=200).output.splitlines()
    ]

    assert lines[lines.index("Options:") + 1 : -1] == [
        "-c, --cups N Cups. [env: HOWDAH_CUPS; default: 2]",
        "--wait DURATION How long to wait. [default: 90s]",
        "--silent Whether to whistle. [env: HOWDAH_WHISTLE; default: true]",
        "--lid / --no-lid Close the lid. [env: HOWDAH_LID; default: true]",
        "--hurry Boil now.",
        "--tea [green|black] Which tea. [env: HOWDAH_TEA; default: green]",
        "--friend NAME Who comes. [may be repeated; env: HOWDAH_FRIENDS; default: none]",
    ]


def test_a_command_may_have_only_some_of_the_flags():
    @click.command()
    @flags_of(Kettle, only=("tea",))
    def brew() -> None:
        """Brew tea."""

    assert [each.name for each in brew.params] == ["tea"]
