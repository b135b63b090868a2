"""Two apps on one table: neither resets the living rows of the other."""

from __future__ import annotations

import asyncio
import time

import pytest

from howdah import Howdah, Where, WorkerOptions, telemetry
from howdah.table import declaration
from howdah.table.check import problems
from howdah.table.declaration import Declarations, TableDeclaration, conflicts

pytestmark = pytest.mark.anyio

SHORT, LONG = 1.0, 60.0


async def looks(store, seconds):
    """Look for silent rows all the time; how many went back or failed."""
    done, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        done += sum(await store.reset(100))
        await asyncio.sleep(0.1)
    return done


@pytest.fixture
async def pair(database, uploads, store_for, monkeypatch):
    """The stores of a patient and of an impatient app, each with the name of its node."""
    names = iter(["patient:1", "hasty:2"])
    made = []
    for stall, kind in ((LONG, "tar"), (SHORT, "zip")):
        table = Howdah(database.dsn).table("uploads", stalled_after=stall, where=Where("kind = $1", kind), max_resets=1)
        store, name = await store_for(table), next(names)
        monkeypatch.setattr(declaration, "node_name", lambda name=name: name)
        assert await store.reset(10) == (0, 0), "it declares itself"
        made.append((store, name))
    (patient, first), (hasty, second) = made

    async def claim(store, most=10):
        return await store.claim_for(first if store is patient else second, most)

    return patient, hasty, claim


async def own_time(declarations):
    """The stall time of this app, for the rows of every app."""
    return declarations._plan.options.stalled_after, [], []


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "unguarded"])
async def test_a_row_is_silent_when_its_own_app_says_so(uploads, rows, pair, monkeypatch, guarded):
    """Unguarded, the living rows of the other app are reset as well."""
    if not guarded:
        monkeypatch.setattr(Declarations, "stalls", own_time)
    patient, hasty, claim = pair
    await rows.add(2, kind="tar")
    await rows.add(1, kind="zip")
    assert len(await claim(patient)) == 2
    await rows.set(1, kind="zip")  # rows of one app may turn into rows of the other
    assert len(await claim(hasty)) == 1

    taken = await looks(hasty, 3 * SHORT)
    if not guarded:
        assert taken == 3
        return
    assert taken == 1
    assert await rows.states() == ["processing", "processing", "queued"]
    assert [(await rows.one(id))["num_resets"] for id in (1, 2, 3)] == [0, 0, 1]


async def test_rows_of_an_unknown_worker_are_given_the_longest_time(uploads, rows, pair):
    _patient, hasty, _claim = pair
    await rows.add(1, kind="zip")
    await hasty.claim_for("of the release before:3", 1)
    assert await looks(hasty, 2 * SHORT) == 0
    await uploads.execute("delete from howdah.table_worker where node = 'patient:1'")
    hasty._resetting._declarations._next = 0.0
    assert await looks(hasty, 2 * SHORT) == 1, "nobody asks for more time than this app any longer"


async def test_rows_of_another_app_without_nodes_come_back_in_the_end(uploads, rows, pair):
    _patient, hasty, claim = pair
    await rows.add(1, kind="zip")
    await claim(hasty)
    await rows.set(1, kind="tar")  # its handler changed what the condition asks for, then its node died
    assert await looks(hasty, 1.5 * SHORT) == 0
    assert await looks(hasty, 2.5 * SHORT) == 1


async def test_a_conflict_is_an_alarm(database, uploads, store_for, conn, caplog):
    emitted = []
    stop = telemetry.subscribe(lambda name, facts: emitted.append(facts) if name == "table.conflict" else None)
    for stall in (LONG, SHORT):
        store = await store_for(Howdah(database.dsn).table("uploads", name=f"rows {stall}", stalled_after=stall))
        await store.reset(10)
        store._resetting._declarations._next = 0.0
        await store.reset(10)
    stop()

    assert emitted == [{"table": "rows 1.0", "stalled_after": [SHORT, LONG]}], "once"
    assert sum("for the same rows" in record.message for record in caplog.records) == 1
    [found] = await problems(conn, store._plan.table, "howdah")
    assert found.where == "conflict"
    assert "stalled_after=60" in found.what


def test_only_overlapping_declarations_conflict():
    def declared(stall, condition, live=True):
        return TableDeclaration("node", "name", stall, condition, live)

    one = declared(30.0, "kind = $1 abc")
    assert conflicts([one, one]) == []
    assert conflicts([one, declared(60.0, "kind = $1 def")]) == [], "they exclude each other"
    assert conflicts([one, declared(30.0, None)]) == [], "they agree"
    assert conflicts([one, declared(60.0, None, live=False)]) == []
    assert len(conflicts([one, declared(60.0, None)])) == 1
    assert len(conflicts([one, declared(60.0, "kind = $1 abc")])) == 1


async def test_a_longer_time_that_was_declared_since_the_last_look_counts(uploads, rows, pair, database, store_for):
    _patient, hasty, _claim = pair
    await rows.add(1, kind="zip")
    table = Howdah(database.dsn).table("uploads", stalled_after=LONG, where=Where("kind = $1", "zip"))
    newer = await store_for(table)
    relation = await uploads.fetchval("delete from howdah.table_worker where node = 'patient:1' returning relation")
    hasty._resetting._declarations._next = 0.0
    await hasty.reset(10)  # it reads what is declared, and again in ten seconds only
    await uploads.execute(
        "insert into howdah.table_worker (relation, node, name, stalled_after) values ($1, 'newer:3', 'uploads', $2)",
        relation,
        LONG,
    )
    assert len(await newer.claim_for("newer:3", 1)) == 1

    assert await looks(hasty, 3 * SHORT) == 0
    assert await rows.states() == ["processing"]


async def test_a_node_declares_its_time_before_it_claims(app, uploads, rows, conn):
    await rows.add(1)
    declared: list[float] = []

    table = app.table("uploads", stalled_after=LONG)

    @table.handler
    async def upload(_row: dict[str, object]) -> None:
        declared.append(await conn.fetchval("select max(stalled_after) from howdah.table_worker"))

    await app.node(WorkerOptions(drain=True), upkeep=False).run()
    assert declared == [LONG]


async def test_rows_with_a_short_time_come_back_although_another_node_looks_less_often(
    uploads, rows, pair, monkeypatch
):
    patient, hasty, claim = pair
    monkeypatch.setattr(declaration, "node_name", lambda: "patient:1")
    await rows.add(1, kind="zip")
    await claim(hasty)
    patient._resetting._declarations._next = 0.0  # it reads what the others declare
    back, until = 0, time.monotonic() + 60
    while not back and time.monotonic() < until:
        await asyncio.sleep(2.1)  # as a node looks whose own rows may be silent for a minute
        back = sum(await patient.reset(10))
    assert back == 1
