"""Secret: what it shows, where it may be, and what is hidden of the arguments it is in."""

from __future__ import annotations

import copy
import json
import pickle
import re
import subprocess
import sys
import traceback
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, NamedTuple, TypedDict
from urllib.parse import quote, quote_plus

import msgspec
import pytest

from howdah import ArgumentError, ConfigError, Howdah, Poison, Secret
from howdah.arguments import Arguments, encode
from howdah.job import Job
from howdah.redact import describe, handler_secrets, hide, scrub, spellings
from howdah.secrets import MARK, leaves, marked, marks, masked, pointers
from howdah_agent.executors.command import command

CANARY = "Kanarienvogel4711"


class Card(msgspec.Struct, rename="camel"):
    card_number: Secret[str]
    holder: str = "A"
    others: list[Card] | None = None


class Plain(msgspec.Struct):
    inner: Plain | None = None
    names: list[str] = []


class Row(msgspec.Struct, array_like=True, tag=True):
    name: str
    pin: Secret[int]


@dataclass
class Order:
    id: int
    card: Card
    codes: dict[str, Secret[str]]


class Colour(Enum):  # msgspec quotes what is none
    RED = "red"


class Pair(NamedTuple):
    left: str
    right: Secret[str]


class Typed(TypedDict):
    key: Secret[str]


def of(function: Any) -> Arguments:
    return Arguments("charge", function, {})


def test_a_secret_shows_itself_nowhere():
    secret = Secret(CANARY)

    for text in (
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret!r:>20}",
        f"{secret:^9}",
        f"{secret} {[secret]!r}",
        repr([secret]),
        repr({"card": secret}),
        str(asdict(Order(1, Card(secret), {"a": secret}))),
        repr(Card(secret)),
        str(vars(type(secret))),
    ):
        assert CANARY not in text
        assert "***" in text or "Secret" in text
    assert secret.reveal() == CANARY
    assert not hasattr(secret, "__dict__")


def test_two_secrets_are_equal_by_value_and_no_secret_equals_its_value():
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Secret([1]))


@pytest.mark.parametrize("way", ["json", "msgspec", "msgpack", "pickle"])
def test_no_other_encoder_gives_it_away(way):
    ways = {
        "json": json.dumps,
        "msgspec": msgspec.json.encode,
        "msgpack": msgspec.msgpack.encode,
        "pickle": pickle.dumps,
    }
    with pytest.raises(TypeError) as caught:
        ways[way](Secret(CANARY))
    assert CANARY not in str(caught.value)
    assert copy.deepcopy(Secret(CANARY)) == copy.copy(Secret(CANARY)) == Secret(CANARY)


@pytest.mark.parametrize("carrier", ["result", "meta", "event"])
def test_a_secret_that_is_no_argument_is_refused(carrier):
    with pytest.raises(ArgumentError, match="sent only as an argument annotated") as caught:
        encode({"a": [Secret(CANARY)]}, what=carrier)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("hint", "found"),
    [
        (Secret[str], ("",)),
        (Secret, ("",)),
        (Secret[Card], ("",)),
        (Secret[str] | None, ("",)),
        (Annotated[Secret[str], "told"], ("",)),
        (list[Secret[str]], ("/*",)),
        (tuple[int, Secret[str]], ("/1",)),
        (tuple[Secret[str], ...], ("/*",)),
        (frozenset[Secret[str]], ("/*",)),
        (dict[str, list[Secret[str]]], ("/*/*",)),
        (dict[Secret[str], int], ("",)),
        (Card, ("/cardNumber", "/others/*")),
        (Row, ("/2",)),
        (Order, ("/card/cardNumber", "/card/others/*", "/codes/*")),
        (Pair, ("/1",)),
        (Typed, ("/key",)),
        (Plain, ()),
        (dict[str, Any], ()),
    ],
    ids=str,
)
def test_where_secrets_are_is_known_from_the_type(hint, found):
    assert pointers(hint) == found


@pytest.mark.parametrize(
    ("secrets", "shown"),
    [
        ([], {"a": 1, "b": [{"c": "x"}, {"c": None}], "d/e": {"~": 2}}),
        (["/a"], {"a": "***", "b": [{"c": "x"}, {"c": None}], "d/e": {"~": 2}}),
        (["/b/*/c"], {"a": 1, "b": [{"c": "***"}, {"c": None}], "d/e": {"~": 2}}),
        (["/b/c"], {"a": 1, "b": [{"c": "***"}, {"c": None}], "d/e": {"~": 2}}),
        (["/b/1", "/nowhere/x"], {"a": 1, "b": [{"c": "x"}, "***"], "d/e": {"~": 2}}),
        (["/d~1e/~0"], {"a": 1, "b": [{"c": "x"}, {"c": None}], "d/e": {"~": "***"}}),
        (["/a/deeper/than/that"], {"a": "***", "b": [{"c": "x"}, {"c": None}], "d/e": {"~": 2}}),
        (["/*"], {"a": "***", "b": "***", "d/e": "***"}),
        ([""], "***"),
    ],
    ids=str,
)
def test_a_pointer_hides_what_it_leads_to_and_rather_too_much(secrets, shown):
    value = {"a": 1, "b": [{"c": "x"}, {"c": None}], "d/e": {"~": 2}}

    assert masked(value, secrets) == shown
    assert value["b"] == [{"c": "x"}, {"c": None}], "the original was changed"


@pytest.mark.parametrize(
    ("meta", "found"),
    [
        (None, ()),
        ({}, ()),
        ([], ()),
        ({MARK: ["/a", "b", ""]}, ("/a", "/b", "")),
        ({MARK: "card"}, ("",)),
        ({MARK: {"a": 1}}, ("",)),
        ({MARK: [1]}, ("",)),
        ({MARK: ["/a"] * 1001}, ("",)),
        (b'{"x": 1}', ()),
        (b'{"howdah.secrets": ["/a"]}', ("/a",)),
        (b'{"howdah.secrets": \xff', ("",)),
    ],
    ids=str,
)
def test_a_mark_nobody_understands_hides_everything(meta, found):
    assert marks(meta) == found


def test_marks_add_to_those_that_are_given():
    assert marked({"a": 1, MARK: ["/x"]}, ["/card", "/x"]) == {"a": 1, MARK: ["/card", "/x"]}
    assert marked(None, ["/card"]) == {MARK: ["/card"]}


def test_the_texts_of_secrets_are_their_leaves():
    value = {"a": {"b": [1.5, "x", None, True], "c": 12345678901234567890}, "d": "no"}

    assert sorted(leaves(value, ["/a"])) == ["1.5", "12345678901234567890", "x"]


def test_arguments_travel_as_plain_values_and_arrive_as_secrets():
    async def charge(user: int, card: Secret[str], *, order: Order, at: Secret[datetime], sum: Secret[Decimal]) -> None:
        got.extend([user, card, order, at, sum])

    got: list[Any] = []
    arguments = of(charge)
    order = Order(1, Card(Secret("n")), {"x": Secret("y")})
    at = datetime(2030, 1, 1, tzinfo=UTC)
    payload = arguments.encode([7, Secret(CANARY)], {"order": order, "at": Secret(at), "sum": Secret(Decimal("1.50"))})

    assert msgspec.json.decode(payload)["card"] == CANARY
    assert msgspec.json.decode(payload)["order"]["card"]["cardNumber"] == "n"
    with pytest.raises(StopIteration):
        arguments.call(payload).send(None)
    assert got == [7, Secret(CANARY), order, Secret(at), Secret(Decimal("1.50"))]
    assert arguments.secrets == (
        "/card",
        "/order/card/cardNumber",
        "/order/card/others/*",
        "/order/codes/*",
        "/at",
        "/sum",
    )


def test_plain_values_are_taken_too_as_from_the_command_line():
    async def charge(card: Secret[str], also: Secret[int] | None = None) -> None: ...

    assert of(charge).decode(of(charge).encode(["4111"], {})).card == Secret("4111")
    assert of(charge).decode(b'{"card": "4111", "also": null}').also is None


@pytest.mark.parametrize("given", [CANARY, [CANARY], {"a": CANARY}, None], ids=["text", "list", "object", "nothing"])
def test_a_secret_that_does_not_fit_is_not_quoted(given):
    async def charge(n: Secret[Colour]) -> None: ...

    payload = msgspec.json.encode({"n": given})
    with pytest.raises(ArgumentError, match=r"expected a secret `Colour`, got something else - at `\$\.n`") as caught:
        of(charge).decode(payload)
    with pytest.raises(Poison) as poison:
        of(charge).call(payload)
    for error in (caught.value, poison.value):
        assert CANARY not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    "values",
    [
        {"any": Secret(CANARY)},
        {"any": [{"a": Secret(CANARY)}]},
        {"any": {Secret(CANARY): 1}},
        {"card": "x", "any": [Secret(CANARY)]},
    ],
    ids=["bare", "nested", "key", "besides"],
)
@pytest.mark.parametrize("has_secrets", [True, False])
def test_a_secret_where_none_is_expected_is_refused(values, has_secrets):
    async def with_secret(any: Any, card: Secret[str] | None = None) -> None: ...

    async def without(any: Any, card: str | None = None) -> None: ...

    with pytest.raises(ArgumentError, match=r"annotate.* Secret\[…\]") as caught:
        of(with_secret if has_secrets else without).encode([], values)
    assert CANARY not in str(caught.value)


def test_what_cannot_be_kept_is_refused_in_a_secret_too():
    async def charge(card: Secret[Any], n: Secret[float] | None = None) -> None: ...

    for value, why in (
        ("\0", "NUL"),
        (float("nan"), "NaN"),
        ("x" * 2_000_000, "bytes of JSON"),
        (object(), "no JSON form"),
    ):
        with pytest.raises(ArgumentError, match=why):
            of(charge).encode([Secret(value)], {})
    with pytest.raises(ArgumentError, match="NaN"):
        of(charge).encode([], {"card": 1, "n": Secret(float("inf"))})


def test_a_command_does_not_take_a_secret():
    with pytest.raises(ConfigError, match="argument 'key' of command 'fetch' is a Secret"):
        command(Howdah(), "fetch", ["curl", "{key}"], takes={"key": Secret[str]})


def test_a_job_shows_neither_its_payload_nor_its_marks():
    app = Howdah()

    @app.task
    async def charge(card: Secret[str]) -> None: ...

    new = charge.using(meta={"a": 1}).job(Secret(CANARY))
    job = Job(1, "q", "charge", 1, 5, 9, new.payload, meta_json=new.meta)

    assert CANARY not in repr(new) + repr(job)
    assert CANARY.encode() in new.payload
    assert msgspec.json.decode(new.meta) == {"a": 1, MARK: ["/card"]}
    assert job.meta == {"a": 1}
    assert charge.job(Secret("x")).meta == b'{"howdah.secrets":["/card"]}'


def test_a_task_without_secrets_says_nothing_of_them():
    app = Howdah()

    @app.task
    async def greet(name: str) -> None: ...

    assert greet.job("x").meta is None
    assert greet.using(meta={"a": 1}).job("x").meta == b'{"a":1}'


@pytest.mark.parametrize(
    "text",
    [
        "refused: {}",
        "{!r}",
        "{!a}",
        "{bytes}",
        "{other}",
        '{{"card": {json}}}',
        "https://pay/?card={quoted}",
        "https://pay/?card={plus}",
        "  | in a group:\n  | {indented}",
    ],
)
def test_a_secret_is_found_in_every_spelling(text):
    secret = 'Kanarien vogel/ü\n"zwei & mehr"\\'
    message = text.format(
        secret,
        json=json.dumps(secret),
        bytes=secret.encode(),
        other=msgspec.json.encode(secret).decode(),
        quoted=quote(secret, safe=""),
        plus=quote_plus(secret),
        indented=secret.replace("\n", "\n  | "),
    )

    hidden = hide(message, spellings([secret]))

    for piece in ("Kanarien", "vogel", "zwei", "mehr"):
        assert piece in message
        assert piece not in hidden


def test_short_secrets_are_hidden_as_words_and_the_shortest_not_at_all():
    words = spellings(["737", "12", "", "abcdef"])

    assert hide("737 7370 17 12 xabcdefx", words) == "*** 7370 17 12 x***x"


def test_too_much_to_look_through_is_not_shown_at_all():
    assert hide("x" * 1_000_000, [f"secret-{i}" for i in range(1000)]) == "***"


def test_what_was_told_is_in_no_text_that_is_kept():
    def fail() -> None:
        try:
            raise ValueError(f"first {CANARY}")
        except ValueError as error:
            error.add_note(f"note {CANARY}")
            raise RuntimeError({"card": CANARY}) from error

    token = handler_secrets.set(spellings([CANARY]))
    try:
        with pytest.raises(RuntimeError) as caught:
            fail()
        text = describe(caught.value)
        assert scrub(f"a{CANARY}b") == "a***b"
    finally:
        handler_secrets.reset(token)

    assert CANARY not in str(text)
    assert text[2].count("***") == 3
    assert CANARY in str(describe(caught.value)), "the secrets of a handler are hidden only while it runs"


TYPED = """
from howdah import Howdah, Secret
app = Howdah()

@app.task
async def charge(user: int, card: Secret[str]) -> None:
    text: str = card.reveal()

async def main() -> None:
    await charge.enqueue(7, Secret("x"))
    await charge.enqueue(7, "x")  # E: str for a secret
    await charge.enqueue(7, Secret(1))  # E: another secret
"""


def test_mypy_wants_a_secret_of_the_right_type(tmp_path):
    file = tmp_path / "typed.py"
    file.write_text(TYPED)
    output = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(file)],
        capture_output=True,
        text=True,
    ).stdout
    wrong = [number for number, line in enumerate(TYPED.splitlines(), 1) if "# E:" in line]
    assert [int(number) for number in re.findall(r"typed\.py:(\d+): error", output)] == wrong, output
