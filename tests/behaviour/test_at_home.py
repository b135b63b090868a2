"""Small things that applications stumble over: a missing schema, synchronous administration, models of pydantic."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from howdah import ArgumentError, Howdah, SchemaError

pytestmark = pytest.mark.anyio


async def test_without_a_schema_every_call_says_what_to_run(database):
    app = Howdah(database.dsn, schema="missing")

    @app.task
    async def send(n: int = 1) -> None: ...

    calls = [
        send.enqueue,
        lambda: send.using(key="k").enqueue(),
        lambda: app.enqueue_many([send.job(), send.job()]),
        lambda: app.admin.list(),
        lambda: app.admin.get(1),
        lambda: app.admin.pause("mail"),
        lambda: app.log.append("Order-1", {"type": "Placed"}),
    ]
    for call in calls:
        with pytest.raises(SchemaError, match=r"missing.* does not exist in .*; run `howdah migrate`"):
            await call()
    await app.close()


def test_synchronous_code_has_the_same_administration(database):
    app = Howdah(database.dsn)

    @app.task
    def send(n: int) -> None: ...

    made = send.enqueue_sync(1)
    admin = app.admin_sync

    assert admin.get(made.id).kind == "send"
    assert [row.id for row in admin.list(state="queued")] == [made.id]
    assert admin.cancel([made.id])[0].result == "cancelled"
    assert "retry" in dir(admin)
    with pytest.raises(AttributeError, match="no method 'jobs'"):
        admin.jobs()
    asyncio.run(app.close())


async def test_a_row_of_the_admin_can_be_made_a_dict_as_web_frameworks_do(app: Howdah):
    @app.task
    async def send(n: int) -> None: ...

    made = await send.enqueue(1)
    row = await app.admin.get(made.id)

    assert dict(row)["args"] == {"n": 1}
    assert json.loads(json.dumps(dict(row)))["kind"] == "send"


class Placed:
    """Has what Howdah uses of a pydantic model, and iterates over its fields as one does."""

    def __init__(self, customer: str) -> None:
        self.customer = customer

    def __iter__(self) -> Any:
        yield "customer", self.customer

    def model_dump(self, mode: str = "python") -> dict[str, Any]:
        return {"customer": self.customer}

    @classmethod
    def model_validate(cls, value: Any) -> Placed:
        if not isinstance(value["customer"], str):
            raise ValueError("customer must be a string")
        return cls(**value)


async def test_a_pydantic_model_is_an_event(app: Howdah):
    app.event(Placed)

    await app.log.append("Order-1", Placed("ada"))
    await app.log.append("Order-1", [Placed("bob"), Placed("cyd")])

    read = await app.log.stream("Order-1")
    assert [type(event.data) for event in read] == [Placed] * 3
    assert [event.data.customer for event in read] == ["ada", "bob", "cyd"]


def test_a_message_about_an_argument_says_null_and_not_a_type_expression(app: Howdah):
    @app.task
    async def send(n: int | None) -> None: ...

    with pytest.raises(ArgumentError, match=r"expected `int` or null, got `str`"):
        send.handler.arguments.decode(msgspec.json.encode({"n": "x"}))
