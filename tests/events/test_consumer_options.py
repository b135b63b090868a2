"""How a consumer can be, and how it cannot."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import pytest

from howdah import Backoff, ConfigError, Howdah, WorkerOptions
from kit.node import drain

pytestmark = pytest.mark.anyio


@pytest.fixture
def app() -> Howdah:
    return Howdah("postgresql://nowhere.invalid/x")


async def handler(event: Any, tx: Any) -> None: ...


def test_the_defaults_are_the_documented_ones(app):
    app.consumer("orders")(handler)
    options = app.consumers["orders"].options
    assert (options.only, options.types, options.batch, options.start) == (None, None, 100, "beginning")
    assert (options.on_failure, options.max_failures, options.timeout, options.partitions) == ("halt", 5, 30, 1)
    assert (options.poll, options.max_poll, options.pause) == (1, 30, 0)
    assert [options.retry.steady(n) for n in (1, 2, 6, 9)] == [1, 2, 30, 30]
    worker = WorkerOptions()
    assert (worker.heartbeat, worker.lease, worker.rebalance, worker.dispatch, worker.leader) == (
        5,
        30,
        5,
        0.2,
        "lease",
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"batch": 0},
        {"batch": 10_001},
        {"batch": 1.5},
        {"batch": True},
        {"batch": None},
        {"batch": "100"},
        {"partitions": 0},
        {"partitions": 1001},
        {"partitions": 2.0},
        {"partitions": True},
        {"max_failures": 0},
        {"max_failures": 1.5},
        {"max_failures": None},
        {"start": "middle"},
        {"start": -1},
        {"start": 1.5},
        {"start": True},
        {"start": None},
        {"on_failure": "skip"},
        {"on_failure": None},
        {"on_failure": ["halt"]},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": math.nan},
        {"timeout": "30"},
        {"timeout": None},
        {"poll": 0},
        {"poll": None},
        {"max_poll": -3},
        {"max_poll": math.nan},
        {"pause": -0.1},
        {"pause": math.nan},
        {"pause": "1"},
        {"retry": 5},
        {"retry": None},
        {"retry": {ValueError: Backoff()}},
        {"only": "Order"},
        {"only": 5},
        {"only": []},
        {"only": [""]},
        {"only": ["Order-17"]},
        {"only": ["x" * 101]},
        {"only": [5]},
        {"only": [None]},
        {"only": ["Order", ["Basket"]]},
        {"types": "Placed"},
        {"types": int},
        {"types": 5},
        {"types": ()},
        {"types": [""]},
        {"types": [5]},
        {"types": [None]},
        {"types": [["Placed"]]},
        {"types": ["x" * 101]},
        {"types": ["a\nb"]},
        {"colour": "red"},
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_is_refused(app, settings):
    with pytest.raises(ConfigError):
        app.consumer("orders", **settings)(handler)
    assert app.consumers == {}


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb", "a\0", "orders#1", None, 5])
def test_a_name_that_cannot_be_is_refused(app, name):
    with pytest.raises(ConfigError):
        app.consumer(name)(handler)


def test_two_consumers_cannot_share_a_name(app):
    app.consumer("orders")(handler)
    with pytest.raises(ConfigError, match="two consumers are named 'orders'"):
        app.consumer("orders")(handler)


def _plain(event): ...


async def _nothing(): ...


async def _other(order): ...


async def _more(event, tx, conn): ...


async def _by_name(*, event): ...


async def _many(*events): ...


async def _by_position(event, tx, /): ...


async def _generates(event):
    yield event


class WithoutHandle:
    pass


class NeedsArguments:
    def __init__(self, model): ...

    async def handle(self, event): ...


class PlainHandle:
    def handle(self, event): ...


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (_plain, "write `async def`"),
        (_nothing, "it takes nothing"),
        (_other, "it takes order"),
        (_more, "takes 'conn'"),
        (_by_name, "by position"),
        (_many, "by position"),
        (_by_position, "tx by name"),
        (_generates, "write `async def`"),
        (WithoutHandle, "without a method `handle`"),
        (WithoutHandle(), "without a method `handle`"),
        (NeedsArguments, "pass an instance instead"),
        (PlainHandle, "write `async def`"),
        (functools.partial(_plain), "without a method `handle`"),
        ("handler", "without a method `handle`"),
        (None, "without a method `handle`"),
    ],
    ids=lambda value: repr(value).partition(" at 0x")[0],
)
def test_a_handler_that_cannot_be_is_refused(app, target, words):
    with pytest.raises(ConfigError, match=words):
        app.consumer("orders")(target)
    assert app.consumers == {}


def test_the_decorator_leaves_what_it_decorates(app):
    assert app.consumer("a")(handler) is handler
    assert app.consumer("b")(PlainHandleToo) is PlainHandleToo
    assert NeedsArguments is not app.consumer("c")(NeedsArguments(1))


class PlainHandleToo:
    async def handle(self, events): ...


def test_types_can_be_classes(app):
    @app.event(name="order placed")
    @dataclass
    class OrderPlaced:
        total: int

    @dataclass
    class Unknown:
        total: int

    app.consumer("orders", types=[OrderPlaced, Unknown, "Paid"], only=("Order",), start=7, poll=60, max_poll=1)(handler)
    options = app.consumers["orders"].options
    assert (options.types, options.only) == (("order placed", "Unknown", "Paid"), ("Order",))
    assert (options.start_position, options.max_poll) == (7, 1)


@pytest.mark.parametrize("settings", [{"rebalance": 0}, {"dispatch": 0}, {"dispatch": -1}, {"leader": "king"}])
def test_settings_of_the_node_are_checked_too(settings):
    with pytest.raises(ConfigError):
        WorkerOptions(**settings)


async def test_what_a_consumer_wants_can_change_between_deployments(database):
    """Its place in the log does not."""
    got: list[str] = []
    for n, settings in enumerate(({"only": ["Order"]}, {"types": ["Paid"]}, {})):
        app = Howdah(database.dsn)

        @app.consumer("orders", start="beginning", **settings)
        async def orders(event):
            got.append(f"{event.stream} {event.type}")

        await app.log.append(f"Order-{n}", {"type": "Placed"})
        await app.log.append(f"Basket-{n}", [{"type": "Paid"}, {"type": "Left"}])
        await drain(app)
        [row] = await app.log.admin.consumers()
        assert (row.only, row.types) == (settings.get("only"), settings.get("types"))
        await app.close()
    assert got == ["Order-0 Placed", "Basket-1 Paid", "Order-2 Placed", "Basket-2 Paid", "Basket-2 Left"]
