"""What people can do to a consumer: pause, resume, reset, skip, forget, switch, wait for it."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from howdah import ConfigError, Howdah, HowdahError
from kit.node import consumers_of, drain, eventually, node

pytestmark = pytest.mark.anyio


@pytest.fixture
async def seen(conn):
    """A read model, and what is in it."""
    await conn.execute("create table seen (n bigserial, position bigint)")

    async def seen() -> list[int]:
        return [row[0] for row in await conn.fetch("select position from seen order by n")]

    return seen


@pytest.fixture
def gate(app) -> Any:
    """Holds up the consumer ``notes`` in the middle of a batch while it is closed."""
    gate = Gate()

    @app.consumer("notes", batch=10)
    async def notes(event, tx):
        await tx.execute("insert into seen (position) values ($1)", event.position)
        gate.calls += 1
        gate.inside.set()
        await gate.open.wait()

    return gate


class Gate:
    def __init__(self) -> None:
        self.open, self.inside = asyncio.Event(), asyncio.Event()
        self.open.set()
        self.calls = 0


async def append(app: Howdah, count: int = 1) -> int:
    return (await app.log.append("Order-1", [{"type": "Noted"}] * count)).position


async def standing(app: Howdah, name: str = "notes") -> Any:
    rows = [row for row in await app.log.admin.consumers() if row.consumer == name]
    return rows[0] if rows else None


async def test_a_paused_consumer_finishes_its_batch_and_rests(app, seen, gate):
    gate.open.clear()
    await append(app, 2)
    async with node(app) as running_node:
        await asyncio.wait_for(gate.inside.wait(), 30)
        await app.log.admin.pause("notes", by="ann")
        gate.open.set()
        await eventually(lambda: _rests(running_node))
        last = await append(app)
        row = await standing(app)
        assert (row.state, row.paused_by, row.position, row.lag) == ("paused", "ann", 2, 1)
        with pytest.raises(TimeoutError, match=r"'notes' is at 2 and is paused, not at 3, after 0.1 s"):
            await app.log.wait_for("notes", last, timeout=0.1)
        await drain(app)
        assert await seen() == [1, 2], "another node lets it rest as well"

        assert await app.log.admin.resume("notes")
        await app.log.wait_for("notes", last)
    assert await seen() == [1, 2, 3]
    assert (await standing(app)).paused_by is None


async def _rests(running_node: Any) -> bool:
    return not consumers_of(running_node).runners


async def test_a_reset_goes_back_or_leaves_out(app, seen, gate):
    await append(app, 2)
    moment = datetime.now(UTC)
    await asyncio.sleep(0.01)
    await append(app, 3)
    await drain(app)
    reset = app.log.admin.reset
    for to, position, again in (
        ("beginning", 0, [1, 2, 3, 4, 5]),
        (3, 3, [4, 5]),
        ("end", 5, []),
        (moment, 2, [3, 4, 5]),
        (moment - timedelta(days=1), 0, [1, 2, 3, 4, 5]),
        (moment + timedelta(days=1), 5, []),
    ):
        before = len(await seen())
        assert await reset("notes", to) == position
        assert (await standing(app)).position == position
        await drain(app)
        assert (await seen())[before:] == again, to


@pytest.mark.parametrize("to", ["middle", "", -1, 6, 2.5, True, None, "3", [1], datetime(2030, 1, 1)])
async def test_a_reset_to_nowhere_is_refused(app, seen, gate, to):
    await append(app, 5)
    await drain(app)
    with pytest.raises(ConfigError, match=r"cannot reset to|has no time zone"):
        await app.log.admin.reset("notes", to)
    assert (await standing(app)).position == 5


@pytest.mark.parametrize("to", ["beginning", "end", 2, 3])
async def test_a_reset_refuses_the_batch_under_way(app, seen, gate, to):
    await append(app, 3)
    await drain(app)
    await append(app, 2)
    gate.open.clear()
    gate.inside.clear()
    async with node(app):
        await asyncio.wait_for(gate.inside.wait(), 30)
        position = await app.log.admin.reset("notes", to)
        gate.open.set()
        await app.log.wait_for("notes", 5)
        await eventually(lambda: _same(seen, [1, 2, 3, *range(position + 1, 6)]))
    assert gate.calls > 5 - position + 3, "what was under way was rolled back, also when it began where the reset ends"


async def _same(seen: Any, wanted: list[int]) -> bool:
    return bool(await seen() == wanted)


async def test_a_skip_needs_an_event_it_failed_on(app, seen, gate):
    await append(app, 2)
    await drain(app)
    with pytest.raises(ConfigError, match="failed on no event"):
        await app.log.admin.skip("notes")
    assert (await standing(app)).position == 2


async def test_what_does_not_exist_is_refused_by_name(app, conn, seen, gate):
    await append(app)
    await drain(app)
    admin = app.log.admin
    for verb in (
        admin.pause("notse"),
        admin.resume("notse"),
        admin.reset("notse", "beginning"),
        admin.skip("notse"),
        admin.forget("notse"),
        admin.consumers("notse"),
        admin.switch("notes", "notse", "select 1"),
        admin.switch("notse", "notes", "select 1"),
        app.log.wait_for("notse", 1),
    ):
        with pytest.raises(ConfigError, match="there is no consumer 'notse'; `howdah consumers` lists them"):
            await verb
    with pytest.raises(ConfigError, match="there is no part 3 of consumer 'notes'"):
        await admin.reset("notes", "beginning", part=3)
    assert await conn.fetchval("select count(*) from howdah.consumer where not paused") == 1


async def test_only_a_consumer_no_node_has_can_be_forgotten(app, conn, seen, gate):
    await append(app)
    async with node(app):
        await eventually(lambda: _runs(app))
        with pytest.raises(ConfigError, match="still in the code of a live node"):
            await app.log.admin.forget("notes")
        await app.log.wait_for("notes", 1)
    assert (await standing(app)).state == "unassigned"
    await app.log.admin.forget("notes")

    assert list(await app.log.admin.consumers()) == []
    for table in ("consumer", "consumer_partition", "checkpoint", "parked"):
        assert await conn.fetchval(f"select count(*) from howdah.{table}") == 0
    await drain(app)
    assert await seen() == [1, 1], "if it comes back it is new"


async def _runs(app: Howdah) -> bool:
    row = await standing(app)
    return row is not None and row.state == "running"


@pytest.mark.superuser("renames tables of the superuser's")
async def test_a_read_model_is_rebuilt_beside_the_old_one_and_switched_to(app, database, conn, seen, gate):
    await conn.execute("create table rebuilt (n bigserial, position bigint)")
    await append(app, 3)
    await drain(app)

    later = Howdah(database.dsn)

    @later.consumer("notes2")
    async def notes2(event, tx):
        await tx.execute("insert into rebuilt (position) values ($1)", event.position)

    statement = "alter table seen rename to old; alter table rebuilt rename to seen"
    await later.log.append("Order-1", {"type": "Noted"})
    await drain(app)
    await drain(later)
    await later.log.admin.reset("notes2", 2)
    with pytest.raises(HowdahError, match="'notes2' is at 2 and 'notes' already at 4; wait until it has caught up"):
        await later.log.admin.switch("notes", "notes2", statement)
    await later.log.admin.reset("notes2", 4)
    with pytest.raises(asyncpg.UndefinedTableError):
        await later.log.admin.switch("notes", "notes2", "alter table nowhere rename to seen")
    assert (await standing(app)).state == "unassigned", "nothing happened"

    assert await later.log.admin.switch("notes", "notes2", statement) == 4
    row = await standing(app)
    assert (row.state, row.paused_by) == ("paused", "switch to notes2")
    assert await seen() == [1, 2, 3, 4]
    assert await conn.fetchval("select count(*) from old") == 4
    await later.close()


# ---------------------------------------------------------------- read your own writes


async def test_waiting_ends_when_the_consumer_is_there(app, seen, gate):
    await drain(app)
    async with node(app):
        for _ in range(3):
            made = await app.log.append("Order-1", {"type": "Noted"})
            await app.log.wait_for("notes", made)
            assert made.position in await seen()
        await app.log.wait_for("notes", 0, timeout=0)


async def test_waiting_ends_in_time(app, seen, gate):
    await drain(app)
    last = await append(app)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=f"'notes' is at 0, not at {last}, after 0.3 s"):
        await app.log.wait_for("notes", last, timeout=0.3)
    assert time.monotonic() - began >= 0.3


async def test_waiting_for_one_that_halted_ends_at_once(app):
    @app.consumer("bad", max_failures=1)
    async def bad(event):
        raise ValueError("bad luck")

    last = await append(app)
    await drain(app)
    with pytest.raises(HowdahError, match="'bad' is halted at 0: ValueError: bad luck"):
        await app.log.wait_for("bad", last, timeout=60)
