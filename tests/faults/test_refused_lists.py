"""Rows that a table refuses in the ways of the torture, in any order beside others: each ends as it should."""

from __future__ import annotations

import asyncio
import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from howdah import Howdah, telemetry
from howdah.postgres import sql
from howdah.table import rejected as refusal
from howdah_lab.torture.rows import HELD_UP, STATES, Harmed
from kit.node import eventually, node

pytestmark = pytest.mark.superuser("makes tables and triggers beside those of Howdah")

EXAMPLES = os.environ.get("HOWDAH_FAULT_EXAMPLES")
LONGEST = 90.0
"""Seconds that all of them together may take on a slow machine."""
SETTINGS = settings(
    max_examples=int(EXAMPLES or 5),
    derandomize=EXAMPLES is None,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
STATEMENTS = sql.load("howdah_lab.torture", schema="howdah", run_schema="torture")
NEIGHBOURS = 6
EMPTY = "truncate torture.refusing"


def application(dsn: str) -> Howdah:
    """An application that works on the table."""
    app = Howdah(dsn)
    table = app.table(
        "torture.refusing",
        name="refusing",
        record=Harmed,
        order_by=["id"],
        max_attempts=2,
        retry_after=0.1,
        stalled_after=60,  # nothing is to be taken from a node that lives
        poll=0.1,
    )

    @table.handler
    async def work_on(row: Harmed) -> None:
        await asyncio.sleep(row.pause)

    return app


async def put(conn, refusals):
    """Insert rows with these refusals, one of no refusal after each."""
    every = [each for refusal in refusals for each in (refusal, "")] + [""] * NEIGHBOURS
    await conn.execute(STATEMENTS["put_refusing"], list(range(len(every))), [0.0] * len(every), every)


async def unlike(dsn, refusals):
    """Run them on a node; returns what does not end as it should."""
    app = application(dsn)
    conn = await app.database.connect("test")
    wrong = []

    async def over():
        rows = await conn.fetch(STATEMENTS["refusing"])
        wrong[:] = [dict(row) for row in rows if row["state"] != STATES[row["refusal"]] or row["resets"]]
        return rows and not wrong

    try:
        await put(conn, refusals)
        async with node(app, slots=10, grace=1.0):
            try:
                await eventually(over, LONGEST)
            except AssertionError:
                return wrong
        return []
    finally:
        await conn.execute(EMPTY)
        await conn.close()
        await app.close()


@pytest.fixture
def dsn(database):
    async def lay_out():
        conn = await database.connect("test")
        await conn.execute(STATEMENTS["open"])
        await conn.close()

    asyncio.run(lay_out())
    return database.dsn


def test_any_rows_that_are_refused_end_as_they_should_and_so_do_all_others(dsn):
    @SETTINGS
    @given(st.lists(st.sampled_from(sorted(STATES)), min_size=1, max_size=12))
    def check(refusals):
        assert asyncio.run(unlike(dsn, refusals)) == []

    check()


@pytest.mark.anyio
@pytest.mark.parametrize("refusal", [refusal for refusal in STATES if refusal])
async def test_rows_of_one_refusal_only(dsn, refusal):
    assert await unlike(dsn, [refusal] * 3) == []


@pytest.mark.anyio
async def test_a_refused_batch_that_is_not_halved_stops_its_neighbours(dsn, conn, monkeypatch):
    """The control: the rows beside the refused one wait for as long as the guard is off."""
    app = application(dsn)
    failed = asyncio.Event()
    stop = telemetry.subscribe(lambda name, facts: failed.set() if name == "loop.fail" else None)
    monkeypatch.setattr(refusal.split, "__defaults__", (lambda _: False,))
    await put(conn, ["end"])
    ended = "select count(*) from torture.refusing where state = 'completed'"
    try:
        async with node(app, slots=20, grace=1.0):
            async with asyncio.timeout(30):
                await failed.wait()
            assert await conn.fetchval(ended) <= NEIGHBOURS
            monkeypatch.undo()

            async def over():
                return await conn.fetchval(ended) == NEIGHBOURS + 1

            await eventually(over, LONGEST)
    finally:
        stop()
        await app.close()


def test_some_rows_cannot_end():
    """What is waited for after a run leaves out these, and no others."""
    assert [refusal for refusal, state in STATES.items() if state in ("queued", "processing")] == list(HELD_UP)
    assert all(f"'{refusal}'" in STATEMENTS["left"] for refusal in HELD_UP)
