"""Whatever handlers return or raise, their jobs end as they should, and all others are done."""

from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from howdah import Backoff, Howdah, Transaction, redact, telemetry
from howdah.jobs import ack
from howdah_lab.torture.checker import ENDED
from howdah_lab.torture.outcomes import NAMES, RAISED, bring, state_of
from kit.node import eventually, node
from table.ddl import ddl

EXAMPLES = os.environ.get("HOWDAH_FAULT_EXAMPLES")
LONGEST = 90.0
"""Seconds that all of them together may take on a slow machine."""
SETTINGS = settings(
    max_examples=int(EXAMPLES or 8),
    derandomize=EXAMPLES is None,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
AGAIN = Backoff(first=0.01, cap=0.01)
NEIGHBOURS = 10
SHAPES = ("plain", "in_thread", "in_transaction")
STATES = "select id, state, attempt, error from howdah.jobs where id = any($1)"


def application(dsn: str) -> Howdah:
    """Tasks that have a hostile outcome, wherever they run, and one that has none."""
    app = Howdah(dsn)

    @app.task(name="plain", max_attempts=2, retry=AGAIN)
    async def plain(name: str, seed: int) -> object:
        return bring(name, seed)

    @app.task(name="in_thread", max_attempts=2, retry=AGAIN)
    def in_thread(name: str, seed: int) -> object:
        return bring(name, seed)

    @app.task(name="in_transaction", max_attempts=2, retry=AGAIN, transactional=True)
    async def in_transaction(tx: Transaction, name: str, seed: int) -> object:
        return bring(name, seed)

    @app.task(name="neighbour", max_attempts=1)
    async def neighbour(n: int) -> int:
        return n

    return app


async def ask(app: Howdah, outcomes: list[tuple[str, str, int]]) -> tuple[list[int], list[int]]:
    """Enqueue jobs with these outcomes (shape, name, seed) between others; returns the ids of both."""
    hostile, others = [], []
    for at in range(max(len(outcomes), NEIGHBOURS)):
        for shape, name, seed in outcomes[at : at + 1]:
            hostile.append((await app.tasks[shape].enqueue(name, seed)).id)
        if at < NEIGHBOURS:
            others.append((await app.tasks["neighbour"].enqueue(at)).id)
    return hostile, others


async def unlike(app: Howdah, outcomes: list[tuple[str, str, int]]) -> list[str]:
    """Run them on a node; returns what does not end as it should."""
    hostile, others = await ask(app, outcomes)
    conn = await app.database.connect("test")
    wanted = dict.fromkeys(others, ("done",))
    for id, (_, name, _) in zip(hostile, outcomes, strict=True):
        wanted[id] = (state_of(name),) if name else ENDED
    wrong: list[str] = []

    async def over() -> bool:
        rows = await conn.fetch(STATES, list(wanted))
        open_ones = await conn.fetchval("select count(*) from howdah.lease") + await conn.fetchval(
            "select count(*) from howdah.later where due_at < now() + interval '1 hour'"
        )
        wrong[:] = [f"{dict(row)}, not {wanted[row['id']]}" for row in rows if row["state"] not in wanted[row["id"]]]
        return not wrong and not open_ones and len(rows) == len(wanted)

    try:
        async with node(app, slots=10):
            try:
                await eventually(over, LONGEST)
            except AssertionError:
                return wrong or ["something is still under way"]
        return []
    finally:
        await conn.close()
        await app.close()


@pytest.mark.anyio
@pytest.mark.parametrize("shape", SHAPES)
async def test_every_outcome_of_the_list_ends_as_it_should(database, shape):
    assert await unlike(application(database.dsn), [(shape, name, 0) for name in NAMES]) == []


@pytest.mark.anyio
@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
async def test_a_consumer_goes_on_after_every_outcome_of_the_list(app, conn, transactional):
    """What is raised is parked, whatever it is; a result is nothing to a consumer."""
    if transactional:

        async def unstorable(event, tx: Transaction) -> object:
            return bring(event.data["name"], 0)

    else:

        async def unstorable(event) -> object:
            return bring(event.data["name"], 0)

    app.consumer("unstorable", on_failure="park", max_failures=1)(unstorable)
    events = {
        name: (await app.log.append("S-1", {"type": "Unstorable", "data": {"name": name}})).position for name in NAMES
    }

    async def over() -> bool:
        return await conn.fetchval("select min(position) from howdah.checkpoint") == max(events.values())

    async with node(app, rebalance=0.2):
        await eventually(over, LONGEST)
    parked = {row["position"] for row in await conn.fetch("select position from howdah.parked")}
    assert parked == {events[name] for name in (*RAISED, "generator")}


@pytest.mark.anyio
@pytest.mark.superuser("makes a table")
@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
async def test_rows_end_as_their_outcome_of_the_list_says(app, conn, transactional):
    await conn.execute(ddl(extra="name text not null default ''"))
    table = app.table("uploads", poll=0.1, max_attempts=2, retry_after=0.05, transactional=transactional)
    if transactional:

        async def upload(record, tx: Transaction) -> object:
            return bring(record["name"], 0) if record["name"] else None

    else:

        async def upload(record) -> object:
            return bring(record["name"], 0) if record["name"] else None

    table.handler(upload)
    both = [name for each in NAMES for name in (each, "")]
    await conn.executemany("insert into uploads (name) values ($1)", [(name,) for name in both])
    states = {"done": ["completed"], "failed": ["failed"], "cancelled": ["canceled"], "queued": ["queued", "errored"]}
    wrong = []

    async def over() -> bool:
        rows = await conn.fetch(
            "select name, state, num_resets, process_after > now() + interval '1 year' as far from uploads"
        )
        wrong[:] = [
            tuple(row)
            for row in rows
            if row["state"] not in states[state_of(row["name"]) if row["name"] else "done"] or row["num_resets"]
        ]
        waiting = sum(row["state"] in states["queued"] and not row["far"] for row in rows)
        return not wrong and not waiting

    async with node(app, slots=10):
        try:
            await eventually(over, LONGEST)
        except AssertionError:
            pytest.fail(f"not as they should be: {wrong}")


def test_any_outcomes_together_end_as_they_should(database):
    """Of the list, and made up, in any shape and order, many on a node at once."""

    @SETTINGS
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(SHAPES), st.sampled_from([*NAMES, *("" for _ in NAMES)]), st.integers(0, 2**32 - 1)
            ),
            min_size=1,
            max_size=30,
        )
    )
    def check(outcomes):
        assert asyncio.run(unlike(application(database.dsn), outcomes)) == []

    check()


@pytest.mark.anyio
async def test_a_text_that_is_not_cleaned_stops_its_neighbours(database, monkeypatch):
    """The control: without both guards, one text holds up all outcomes of its node for as long as they are off."""
    app = application(database.dsn)
    failed = asyncio.Event()
    stop = telemetry.subscribe(lambda name, facts: failed.set() if name == "loop.fail" else None)
    monkeypatch.setattr(redact, "storable", lambda text: text)
    monkeypatch.setattr(ack, "is_rejection", lambda _: False)
    hostile, others = await ask(app, [("plain", "message-nul", 0)])
    conn = await app.database.connect("test")
    rows = "select count(*) from howdah.done where id = any($1)"
    try:
        async with node(app, slots=20):
            async with asyncio.timeout(30):
                await failed.wait()
            assert await conn.fetchval(rows, others) < NEIGHBOURS
            monkeypatch.undo()

            async def over() -> bool:
                return await conn.fetchval(rows, [*hostile, *others]) == NEIGHBOURS + 1

            await eventually(over, LONGEST)
    finally:
        stop()
        await conn.close()
        await app.close()
