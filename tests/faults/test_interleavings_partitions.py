"""Every act meets a prune that drops a whole partition, which has to stop everybody for a moment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from howdah.maintenance.pruner import Pruner, Retention
from howdah.postgres.database import Database
from kit.interleave import Form, ThreeConnections, fresh_database, meet, result_of, switch_off, three_connections
from kit.interleave_jobs import FORMS, NOBODY, STATEMENTS, TOMORROW, PreparedJobs
from kit.interleave_partitions import lay_within_one_partition
from kit.job_invariants import wrongs

pytestmark = pytest.mark.anyio

ENDS = {
    "ack one done": [4],
    "ack all done": [4, 5, 6, 7],
    "ack one of each": [4, 5],
    "ack in a transaction": [4],
    "ack in a transaction, keyless": [4],
    "cancel a waiting one": [9],
    "cancel all": [3, 8, 9, 10, 11],
    "reset": [5],
    "delete many": [9],
}
"""Jobs that are over by an act."""


@pytest.fixture(scope="module")
def shared_database(server: Any, template: str) -> Iterator[Database]:
    yield from fresh_database(server, template)


@pytest.fixture(scope="module")
async def three(shared_database: Database) -> AsyncIterator[ThreeConnections]:
    async with three_connections(shared_database) as conns:
        yield conns


async def drop(_ground: PreparedJobs, conn: Any) -> Any:
    return await conn.fetchval(STATEMENTS["prune_partition"], TOMORROW, TOMORROW, *NOBODY)


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "rolled back"])
@pytest.mark.parametrize("first", [True, False], ids=["meets the act", "is met by the act"])
@pytest.mark.parametrize("act", FORMS, ids=str)
async def test_a_dropped_partition_takes_nothing_with_it_that_lives(
    three: ThreeConnections, act: Form, first: bool, commit: bool
):
    prepared = await lay_within_one_partition(three.watch)
    pruning = Form(act="prune", name="partition", do=drop)
    one, other = (act, pruning) if first else (pruning, act)
    await meet(three, lambda conn: one.do(prepared, conn), lambda conn: other.do(prepared, conn), commit=commit)

    after = await prepared.portrait(three.watch)
    assert await wrongs(three.watch) == []
    assert {0, 1, 2, *ENDS.get(str(act), ())} >= set(range(12)) - set(after["jobs"]), "nothing else was over"
    await result_of(drop(prepared, three.watch))
    assert await wrongs(three.watch) == []


HOUR = 3600.0
AN_HOUR_AGO = "update howdah.done set finished_at = now() - interval '2 hours'"


async def prune_hourly(conn: Any) -> Any:
    return await conn.fetchval(STATEMENTS["prune_partition"], HOUR, HOUR, *NOBODY)


@pytest.mark.parametrize("act", [form for form in FORMS if str(form) in ENDS and form.act != "delete"], ids=str)
async def test_a_job_that_ends_while_a_drop_waits_is_kept_for_its_time(three: ThreeConnections, act: Form):
    prepared = await lay_within_one_partition(three.watch)
    await three.watch.execute(AN_HOUR_AGO)

    met = await meet(three, lambda conn: act.do(prepared, conn), prune_hourly, commit=True)

    assert met.waited
    assert isinstance(met.second, int), "the partition is dropped"
    assert set(ENDS[str(act)]) <= set((await prepared.portrait(three.watch))["jobs"])
    assert await wrongs(three.watch) == []


OPEN = "d.id is null or"
ENDED_SINCE = "d.finished_at >= $3 and d.finished_at >= $1 and d.state = 'd'"


async def test_control_without_a_second_look_a_job_that_has_just_ended_is_dropped(direct: Database):
    async with three_connections(direct) as three:
        await switch_off(three.watch, "prune_partition", OPEN, "")
        await switch_off(three.watch, "prune_partition", ENDED_SINCE, "false")
        prepared = await lay_within_one_partition(three.watch)
        await three.watch.execute(AN_HOUR_AGO)
        act = next(form for form in FORMS if str(form) == "ack all done")

        await meet(three, lambda conn: act.do(prepared, conn), prune_hourly, commit=True)

        assert not set(ENDS["ack all done"]) & set((await prepared.portrait(three.watch))["jobs"])


async def test_what_a_lease_still_names_is_not_dropped_with_its_partition(three: ThreeConnections):
    prepared = await lay_within_one_partition(three.watch)
    await three.watch.execute(AN_HOUR_AGO)

    dropped = await prune_hourly(three.watch)

    assert dropped == 1, "only 0"
    assert {row["id"] for row in await three.watch.fetch("select id from howdah.done")} == set(prepared.at(1, 2))


async def test_two_nodes_that_drop_one_partition_do_not_fail(three: ThreeConnections, shared_database: Database):
    prepared = await lay_within_one_partition(three.watch)
    pruner = Pruner(shared_database, Retention())

    async def drop_too(conn: Any) -> Any:
        return await pruner._drop_one(conn, (TOMORROW, TOMORROW), NOBODY)

    met = await meet(three, lambda conn: drop(prepared, conn), drop_too, commit=True)

    assert met.waited
    assert met.second is None
    assert await wrongs(three.watch) == []


async def test_a_partition_is_found_whatever_a_backslash_means(three: ThreeConnections):
    await lay_within_one_partition(three.watch)
    await three.watch.execute(f"{AN_HOUR_AGO}; set standard_conforming_strings = off")
    try:
        assert await prune_hourly(three.watch) == 1
    finally:
        await three.watch.execute("reset standard_conforming_strings")
