"""Classes of events, and upcasters: what was written in an old version is read as today's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from howdah import ConfigError, EventError, Howdah, NewEvent

pytestmark = pytest.mark.anyio


@dataclass
class Placed:
    total: int
    currency: str = "EUR"


class Paid(msgspec.Struct):
    amount: int


async def stored(app: Howdah, type: str, version: int, data: Any) -> Any:
    """What is read of data that was written in an old version."""
    await app.log.append("Order-1", NewEvent(type=type, version=version, data=data))
    return (await app.log.stream("Order-1", backwards=True, limit=1))[0].data


async def test_a_registered_class_comes_back(app):
    app.event(Placed)
    app.event(name="order.paid")(Paid)
    await app.log.append("Order-1", [Placed(5), Paid(3)])
    events = await app.log.stream("Order-1")
    assert [event.type for event in events] == ["Placed", "order.paid"]
    assert [event.data for event in events] == [Placed(5, "EUR"), Paid(3)]
    assert [event.data for event in await app.log.read(types=[Paid])] == [Paid(3)]
    assert [event.data for event in await app.log.stream("Order-1", types=[Placed])] == [Placed(5)]


async def test_without_a_class_data_is_plain(app):
    await app.log.append("Order-1", [Placed(5), NewEvent(type="List", data=[1, "two"])])
    assert [event.data for event in await app.log.read()] == [{"total": 5, "currency": "EUR"}, [1, "two"]]


async def test_the_decorator_gives_the_class_back(app):
    @app.event
    @dataclass
    class Seen:
        n: int

    @app.event(name="felt", version=2)
    class Felt(msgspec.Struct):
        n: int

    await app.log.append("Order-1", [Seen(1), Felt(2)])
    events = await app.log.read()
    assert [(event.type, event.schema_version) for event in events] == [("Seen", 1), ("felt", 2)]
    assert [event.data for event in events] == [Seen(1), Felt(2)]


async def test_upcasters_make_a_chain(app):
    app.event(version=3)(Placed)

    @app.upcaster(Placed, version=1)
    def total_was_text(data: dict[str, Any]) -> dict[str, Any]:
        return {"total": int(data["sum"])}

    @app.upcaster("Placed", version=2)
    def dollars_were_meant(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "currency": "USD"}

    assert await stored(app, "Placed", 1, {"sum": "5"}) == Placed(5, "USD")
    assert await stored(app, "Placed", 2, {"total": 6}) == Placed(6, "USD")
    assert await stored(app, "Placed", 3, {"total": 7}) == Placed(7, "EUR")
    await app.log.append("Order-1", Placed(8))
    newest = (await app.log.stream("Order-1", backwards=True, limit=1))[0]
    assert (newest.schema_version, newest.data) == (3, Placed(8))


async def test_an_upcaster_alone_makes_the_next_version_the_newest(app):
    @app.upcaster("Moved", version=1)
    def place_was_bare(data: Any) -> Any:
        return {"to": data}

    assert await stored(app, "Moved", 1, "Rome") == {"to": "Rome"}
    await app.log.append("Order-1", {"type": "Moved", "data": {"to": "Oslo"}})
    newest = (await app.log.stream("Order-1", backwards=True, limit=1))[0]
    assert (newest.schema_version, newest.data) == (2, {"to": "Oslo"})


async def test_a_version_nothing_reads_is_named(app):
    app.event(version=3)(Placed)
    app.upcaster(Placed, version=2)(lambda data: data)
    with pytest.raises(EventError, match=r"stored with schema version 1 .* add @app.upcaster\('Placed', version=1\)"):
        await stored(app, "Placed", 1, {"total": 5})


async def test_an_event_newer_than_the_code_is_named(app):
    app.event(Placed)
    with pytest.raises(EventError, match="has schema version 2, this code knows up to 1; deploy the code"):
        await stored(app, "Placed", 2, {"total": 5})


async def test_a_type_nobody_registered_is_read_in_any_version(app):
    assert await stored(app, "Foreign", 9, {"x": 1}) == {"x": 1}


async def test_data_that_does_not_fit_is_named_when_it_is_looked_at(app):
    app.event(Placed)
    app.event(Paid)
    await app.log.append("Order-1", [NewEvent(type="Placed", data={"total": "many"}), Paid(1)])
    bad, good = await app.log.read()
    assert good.data == Paid(1)
    with pytest.raises(EventError, match="event 'Placed', schema version 1, cannot be read: Expected `int`, got `str`"):
        _ = bad.data


async def test_an_upcaster_that_makes_nonsense_is_named(app):
    app.event(version=2)(Placed)
    app.upcaster(Placed, version=1)(lambda data: {"total": None})
    with pytest.raises(EventError, match="event 'Placed', schema version 1, cannot be read"):
        await stored(app, "Placed", 1, {})


async def test_an_upcaster_that_fails_raises_its_own(app):
    app.upcaster("Placed", version=1)(lambda data: data["missing"])
    with pytest.raises(KeyError, match="missing"):
        await stored(app, "Placed", 1, {})


async def test_what_cannot_be_registered():
    app = Howdah()
    with pytest.raises(ConfigError, match=r"make it a dataclass, a msgspec\.Struct or a pydantic model"):
        app.event(type("Bare", (), {}))
    app.event(Placed)
    with pytest.raises(ConfigError, match="two classes are registered as event 'Placed'"):
        app.event(name="Placed")(Paid)
    app.upcaster(Placed, version=1)(lambda data: data)
    with pytest.raises(ConfigError, match="two upcasters read version 1"):
        app.upcaster("Placed", version=1)(lambda data: data)
    for version in (0, -1, True, "1", 2**31):
        with pytest.raises(ConfigError, match="schema version of an event must be an integer of at least 1"):
            app.upcaster("Paid", version=version)
        with pytest.raises(ConfigError, match="schema version of an event must be an integer of at least 1"):
            app.event(version=version)(Paid)
