"""Self-repair beside every act on jobs: it changes nothing as long as no job is misplaced."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from howdah.postgres.database import Database
from kit.interleave import Form, ThreeConnections, fresh_database, meet, result_of, switch_off, three_connections
from kit.interleave_jobs import PreparedJobs, ack, acking_in_transaction, lay
from kit.interleave_repair import AGE, BESIDE, REPAIR
from kit.job_invariants import wrongs

pytestmark = pytest.mark.anyio

NOTHING = {"requeued": 0, "ended": 0, "leases": 0}


@pytest.fixture(scope="module")
def shared_database(server: Any, template: str) -> Iterator[Database]:
    yield from fresh_database(server, template)


@pytest.fixture(scope="module")
async def three(shared_database: Database) -> AsyncIterator[ThreeConnections]:
    async with three_connections(shared_database) as conns:
        yield conns


async def aged(conn: Any) -> PreparedJobs:
    prepared = await lay(conn)
    await conn.execute(AGE)
    return prepared


async def alone(three: ThreeConnections, form: Form) -> Any:
    """What the act leaves behind without a repair beside it."""
    prepared = await aged(three.watch)
    await result_of(form.do(prepared, three.watch))
    return await prepared.portrait(three.watch)


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "rolled back"])
@pytest.mark.parametrize("form", BESIDE, ids=str)
async def test_a_repair_beside_an_open_act_changes_nothing(three: ThreeConnections, form: Form, commit: bool):
    expected = await alone(three, form)
    prepared = await aged(three.watch)
    before = await prepared.portrait(three.watch)
    met = await meet(three, lambda conn: form.do(prepared, conn), lambda conn: REPAIR.do(prepared, conn), commit=commit)

    assert (met.second, met.waited) == (NOTHING, False)
    assert await prepared.portrait(three.watch) == (expected if commit else before)
    assert await REPAIR.do(prepared, three.watch) == NOTHING, "nor afterwards"
    assert await wrongs(three.watch) == []


@pytest.mark.parametrize("form", BESIDE, ids=str)
async def test_an_act_beside_an_open_repair_neither_waits_nor_changes(three: ThreeConnections, form: Form):
    expected = await alone(three, form)
    prepared = await aged(three.watch)
    met = await meet(three, lambda conn: REPAIR.do(prepared, conn), lambda conn: form.do(prepared, conn), commit=True)

    assert (met.first, met.waited) == (NOTHING, False)
    assert await prepared.portrait(three.watch) == expected
    assert await wrongs(three.watch) == []


@pytest.mark.parametrize("first", ["repair", "report"])
async def test_a_lease_that_repair_ends_may_be_reported_as_over_at_the_same_moment(three: ThreeConnections, first: str):
    prepared = await aged(three.watch)
    for shared_database in (4, 5, 6, 7):
        await acking_in_transaction("ack_in_transaction", shared_database)(prepared, three.watch)
    await three.watch.execute("update howdah.lease set expires_at = now() + interval '1 hour'")
    assert await REPAIR.do(prepared, three.watch) == NOTHING, "the last job has just ended: its node is about to say so"
    await three.watch.execute(AGE)

    def repair(conn: Any) -> Any:
        return REPAIR.do(prepared, conn)

    def report(conn: Any) -> Any:
        return ack(conn, prepared.node, [], [prepared.token])

    order = (repair, report) if first == "repair" else (report, repair)
    met = await meet(three, *order, commit=True)
    repaired = met.first if first == "repair" else met.second

    assert repaired["leases"] == (1 if first == "repair" else 0)
    assert met.waited == (first == "repair")
    assert await three.watch.fetchval("select count(*) from howdah.lease") == 0
    assert await wrongs(three.watch) == []


async def test_a_repair_that_does_not_look_at_leases_queues_running_jobs_again(direct: Database):
    """The control of the two tests with every act."""
    async with three_connections(direct) as three:
        prepared = await aged(three.watch)
        await switch_off(three.watch, "repair", "and s.id not in (", "and s.id + 1000000 not in (")
        await switch_off(three.watch, "repair", "except select p.id from placed p", "")
        assert (await REPAIR.do(prepared, three.watch))["requeued"] > 0
        assert await wrongs(three.watch) != []
