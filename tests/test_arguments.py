"""Arguments: the quick way through which nearly every call goes says what the long way says."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, get_type_hints
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from howdah import ArgumentError, Secret
from howdah.arguments import Arguments, encode


class Point(msgspec.Struct):
    x: float = 0.0


class Tree(msgspec.Struct, forbid_unknown_fields=True):
    kids: list[Tree] = []


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    n: int | None = None


def plain(a: int, b: str, c: list[str]) -> None: ...


def defaults(a: int = 1, b: str = "x", *, c: bool = False) -> None: ...


def numbers(a: float, b: dict[str, float], c: set[int]) -> None: ...


def moments(a: datetime, b: UUID) -> None: ...


def loose(a, b=None) -> None: ...


def maybe(a: int | None, b: list[int | None]) -> None: ...


def records(a: Point, b: Strict) -> None: ...


def point(a: Point) -> None: ...


def branches(a: Tree) -> None: ...


def keyword_only(*, a: int, b: Any = None) -> None: ...


def hidden(a: Secret[str], b: int = 0) -> None: ...


FUNCTIONS = (plain, defaults, numbers, moments, loose, maybe, records, point, branches, keyword_only, hidden)
POSITIONAL = {function: [*function.__annotations__][:-1] for function in FUNCTIONS} | {
    defaults: ["a", "b"],
    loose: ["a", "b"],
    keyword_only: [],
}


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def tree(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"kids": [value]}
    return value


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(
        ["\0", "\\", "\\u0000", "null", "\ud800", "x" * 300, '"', "2026-01-01T00:00:00Z", str(UUID(int=7)), 2**80]
    ),
)
values = st.one_of(
    st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=5,
    ),
    st.sampled_from(
        [
            Point(1.5),
            Point(math.nan),
            Strict(3),
            {"x": math.inf},
            {"x": 1, "y": math.nan},
            {"n": 1},
            deep(99),
            deep(101),
            deep(5000),
            Secret("s"),
            Secret("\0"),
            [Secret("s")],
            object(),
            datetime(2026, 1, 1),
            UUID(int=1),
            {1, 2},
            "y" * 2000,
            ["a"] * 500,
        ]
    ),
)


def calls(function: Any) -> st.SearchStrategy[tuple[list[Any], dict[str, Any]]]:
    """Any call, and often one that fits."""
    hints = {name: hint for name, hint in get_type_hints(function).items() if name != "return"}
    special = {Any: values, Secret[str]: st.text()}
    fitting = {name: special[hint] if hint in special else st.from_type(hint) for name, hint in hints.items()}
    return st.one_of(
        st.tuples(
            st.lists(values, max_size=3),
            st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), values, max_size=3),
        ),
        st.tuples(st.just([]), st.fixed_dictionaries(fitting)),
    )


def long_way(function: Any, args: list[Any], kwargs: dict[str, Any], largest: int) -> bytes:
    """Name every argument, write all of them, look at what was written in every way, read it."""
    arguments = Arguments("k", function, {})
    names = POSITIONAL[function]
    if len(args) > len(names) or set(names[: len(args)]) & set(kwargs):
        raise ArgumentError("not so")
    named = dict(zip(names, args, strict=False)) | kwargs
    hook = {"hook": _reveal} if arguments.secrets else {}
    payload = encode(named, what="the call of task 'k'", largest=largest, **hook)
    if arguments.secrets:
        arguments._refuse_elsewhere(named)
    arguments.decode(payload)
    return payload


def _reveal(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def encoded_or_error(way: Any, *args: Any) -> bytes | str:
    try:
        return way(*args)
    except ArgumentError as error:
        return str(error)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), largest=st.sampled_from([30, 1000, 10**6]))
def test_the_quick_way_and_the_long_way_say_the_same(function, data, largest):
    args, kwargs = data.draw(calls(function))
    slow = encoded_or_error(long_way, function, args, kwargs, largest)
    quick = encoded_or_error(Arguments("k", function, {}).encode, args, kwargs, largest)
    if slow == "not so":
        assert "positional arguments" in quick or "twice" in quick
    else:
        assert quick == slow


@pytest.mark.parametrize(
    ("function", "kwargs", "words"),
    [
        (plain, {"a": 1, "b": "x", "c": ["y", 1]}, "Expected `str`"),
        (plain, {"a": 1.5, "b": "x", "c": []}, "expected `int`"),
        (plain, {"a": math.nan, "b": "x", "c": []}, "NaN or infinity"),
        (plain, {"a": 1, "b": "\0", "c": []}, "NUL"),
        (plain, {"a": 1, "b": "x"}, "missing argument `c`"),
        (plain, {"a": 1, "b": "x", "c": [], "d": 1}, "unknown argument `d`"),
        (numbers, {"a": 1.0, "b": {"x": math.inf}, "c": set()}, "NaN or infinity"),
        (maybe, {"a": math.nan, "b": []}, "NaN or infinity"),
        (records, {"a": {"x": 1, "y": math.nan}, "b": {}}, "NaN or infinity"),
        (point, {"a": {"x": 1, "y": math.nan}}, "NaN or infinity"),
        (branches, {"a": tree(120)}, "levels deep"),
        (loose, {"a": deep(101)}, "levels deep"),
        (loose, {"a": "\\", "b": "\0"}, "NUL"),
    ],
)
def test_what_the_quick_way_must_not_let_through(function, kwargs, words):
    with pytest.raises(ArgumentError, match="(?i)" + words):
        Arguments("k", function, {}).encode((), kwargs)
