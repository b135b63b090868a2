"""Options: their types read, check and show values; a class of options checks itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from howdah import ConfigError
from howdah.option_types import Bytes, Choice, Duration, Integer, List, Number, Switch, Text, duration, seconds
from howdah.options import OptionError, check, option, options_of


def no_spaces(text: str) -> None:
    if " " in text:
        raise ConfigError(f"must have no spaces, got {text!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kettle:
    SECTION: ClassVar[str] = "kettle"

    name: str = option(..., Text(good=no_spaces), "The name.", "--name")
    cups: int = option(2, Integer(least=1, most=10), "Cups.", "-c --cups", alias="mugs")
    wait: float = option(90.0, Duration(above=0), "How long to wait.", "--wait")
    rest: float = option(0.0, Duration(least=0), "How long to rest.", one_run=True)
    heat: float = option(99.5, Number(least=20), "How hot.")
    water: int = option(1024, Bytes(), "How much.")
    whistle: bool = option(True, Switch(), "Whistle.", "--silent", off=True)
    tea: str = option("green", Choice("green", "black"), "Which tea.")
    friends: list[str] = option([], List(good=no_spaces), "Who comes.", shown="nobody")
    code: str | None = option(None, Text(), "What opens it.", secret=True)
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self)


def test_options_are_the_declared_fields_in_order():
    names = [each.name for each in options_of(Kettle)]
    cups = options_of(Kettle)[1]

    assert names == ["name", "cups", "wait", "rest", "heat", "water", "whistle", "tea", "friends", "code"]
    assert (cups.key, cups.keys, cups.variable) == ("kettle.cups", ["kettle.cups", "kettle.mugs"], "HOWDAH_KETTLE_CUPS")
    assert (cups.flags, cups.default_text) == (("-c", "--cups"), "2")
    assert options_of(Kettle)[3].keys == [], "a flag only"


def test_defaults_are_shown_as_they_may_be_written():
    shown = {each.name: each.default_text for each in options_of(Kettle)}

    assert shown == {
        "name": "",
        "cups": "2",
        "wait": "90s",
        "rest": "0s",
        "heat": "99.5",
        "water": "1024",
        "whistle": "true",
        "tea": "green",
        "friends": "nobody",
        "code": "",
    }


def test_defaults_hold_and_are_not_shared():
    first, second = Kettle(name="a"), Kettle(name="b")

    assert (first.cups, first.wait, first.friends, first.extra) == (2, 90.0, [], {})
    assert first.friends is not second.friends
    with pytest.raises(TypeError, match="name"):
        Kettle()


def test_a_secret_is_not_in_the_repr():
    assert "s3cret" not in repr(Kettle(name="a", code="s3cret"))
    assert "cups=2" in repr(Kettle(name="a", code="s3cret"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "a b"}, "name must have no spaces, got 'a b'"),
        ({"name": 7}, "name must be text, got int"),
        ({"cups": 0}, "cups must be from 1 to 10, got 0"),
        ({"cups": 11}, "cups must be from 1 to 10, got 11"),
        ({"cups": 1.5}, "cups must be a whole number, got 1.5"),
        ({"cups": True}, "cups must be a whole number, got True"),
        ({"cups": "2"}, "cups must be a whole number, got '2'"),
        ({"wait": 0}, "wait must be above zero, got 0"),
        ({"wait": float("nan")}, "wait must be above zero, got nan"),
        ({"rest": -1}, "rest must not be negative, got -1"),
        ({"heat": 19}, "heat must be at least 20, got 19"),
        ({"heat": "hot"}, "heat must be a number, got 'hot'"),
        ({"water": 0}, "water must be above zero, got 0"),
        ({"whistle": 1}, "whistle must be true or false, got 1"),
        ({"tea": "mint"}, "tea must be 'green' or 'black', got 'mint'"),
        ({"friends": "ann"}, "friends must be a list, got 'ann'"),
        ({"friends": [3]}, "friends must be a list of texts, got 3 in it"),
        ({"friends": ["a b"]}, "friends must have no spaces, got 'a b'"),
        ({"cups": None}, "cups must be a whole number, got None"),
    ],
)
def test_a_class_of_options_checks_itself(values, message):
    with pytest.raises(OptionError) as raised:
        Kettle(**{"name": "a", **values})

    assert str(raised.value) == f"kettle.{message}"
    assert raised.value.names == (next(iter(values)),)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("name", "a", "a"),
        ("cups", " 3 ", 3),
        ("wait", "1h30m", 5400.0),
        ("wait", "2.5", 2.5),
        ("heat", "40", 40.0),
        ("water", "10", 10),
        ("whistle", "No", False),
        ("whistle", "1", True),
        ("tea", "BLACK", "black"),
        ("friends", "ann, bob,", ["ann", "bob"]),
    ],
)
def test_text_of_variables_and_flags_is_read(name, text, value):
    [found] = [each for each in options_of(Kettle) if each.name == name]

    assert found.parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("cups", "many", "must be a whole number, got 'many'"),
        ("cups", "0", "must be from 1 to 10, got 0"),
        ("wait", "soon", "'soon' is not a duration; write 90s, 15m, 24h or 14d"),
        ("heat", "hot", "must be a number, got 'hot'"),
        ("heat", "nan", "must be at least 20, got nan"),
        ("whistle", "maybe", "must be true or false, got 'maybe'"),
        ("tea", "mint", "must be 'green' or 'black', got 'mint'"),
        ("name", "a b", "must have no spaces, got 'a b'"),
    ],
)
def test_text_that_cannot_be_read_is_an_error(name, text, message):
    [found] = [each for each in options_of(Kettle) if each.name == name]

    with pytest.raises(ConfigError) as raised:
        found.parse(text)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("cups", 3, 3),
        ("wait", 3, 3.0),
        ("wait", "15m", 900.0),
        ("heat", 40, 40),
        ("whistle", False, False),
        ("tea", "Black", "black"),
        ("friends", ["ann"], ["ann"]),
        ("friends", "ann,bob", ["ann", "bob"]),
    ],
)
def test_values_of_toml_are_read(name, value, read):
    [found] = [each for each in options_of(Kettle) if each.name == name]

    assert found.read(value) == read


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("cups", "3", "must be a whole number, got '3'"),
        ("cups", 3.0, "must be a whole number, got 3.0"),
        ("wait", True, "True is not a duration; write 90s, 15m, 24h or 14d"),
        ("wait", -1, "-1 is not a duration; write 90s, 15m, 24h or 14d"),
        ("heat", "40", "must be a number, got '40'"),
        ("whistle", "no", "must be true or false, got 'no'"),
        ("tea", 7, "must be text, got int"),
        ("code", 7, "must be text, got int"),
        ("friends", 7, "must be a list, got 7"),
    ],
)
def test_toml_has_types(name, value, message):
    [found] = [each for each in options_of(Kettle) if each.name == name]

    with pytest.raises(ConfigError) as raised:
        found.read(value)
    assert str(raised.value) == message


@pytest.mark.parametrize("text", ["200ms", "1s", "90s", "15m", "24h", "36h", "14d", "365d", "0s"])
def test_durations_are_written_as_they_are_read(text):
    assert duration(seconds(text)) == text
