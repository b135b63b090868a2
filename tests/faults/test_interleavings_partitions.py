"""Every act meets a prune that drops a whole partition, which has to stop everybody for a moment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from howdah.pg.database import Database
from kit.interleave import Form, meet, told
from kit.interleave_jobs import FORMS, NOBODY, STATEMENTS, TOMORROW, Ground, lay
from kit.interleave_place import Trio, meeting_place, trio
from kit.model_check import wrongs
from kit.roles import OWNER

pytestmark = pytest.mark.anyio

SIZE = 100
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
DROP = """
do $$
declare
    part record;
begin
    for part in
        select i.inhrelid::regclass as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent in ('howdah.job'::regclass, 'howdah.done'::regclass) and c.relname !~ 'default'
    loop
        execute format('drop table %s', part.name);
    end loop;
end $$
"""


@pytest.fixture(scope="module")
def place(server: Any, template: str) -> Iterator[Database]:
    yield from meeting_place(server, template)


@pytest.fixture(scope="module")
async def three(place: Database) -> AsyncIterator[Trio]:
    async with trio(place) as conns:
        yield conns


async def lay_within_one_partition(conn: Any) -> Ground:
    """The same jobs, and ids were given out beyond their partition."""
    await conn.execute("delete from howdah.job; delete from howdah.done")
    await conn.execute(DROP)
    low = await conn.fetchval("select (nextval('howdah.job_id') / $1 + 1) * $1", SIZE)
    for part in ("job", "done"):
        name = f"howdah.{part}_{low}_{low + SIZE}"
        await conn.execute(
            f"create table {name} partition of howdah.{part} for values from ({low}) to ({low + SIZE});"
            f" alter table {name} owner to {OWNER}"
        )
    await conn.execute("select setval('howdah.job_id', $1)", low)
    ground = await lay(conn)
    await conn.execute("select setval('howdah.job_id', $1)", low + SIZE)
    return ground


async def drop(_ground: Ground, conn: Any) -> Any:
    return await conn.fetchval(STATEMENTS["prune_partition"], TOMORROW, TOMORROW, *NOBODY)


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "rolled back"])
@pytest.mark.parametrize("first", [True, False], ids=["meets the act", "is met by the act"])
@pytest.mark.parametrize("act", FORMS, ids=str)
async def test_a_dropped_partition_takes_nothing_with_it_that_lives(three: Trio, act: Form, first: bool, commit: bool):
    ground = await lay_within_one_partition(three.watch)
    pruning = Form(act="prune", name="partition", do=drop)
    one, other = (act, pruning) if first else (pruning, act)
    await meet(three, lambda conn: one.do(ground, conn), lambda conn: other.do(ground, conn), commit=commit)

    after = await ground.portrait(three.watch)
    assert await wrongs(three.watch) == []
    assert {0, 1, 2, *ENDS.get(str(act), ())} >= set(range(12)) - set(after["jobs"]), "nothing else was over"
    await told(drop(ground, three.watch))
    assert await wrongs(three.watch) == []


HOUR = 3600.0
AN_HOUR_AGO = "update howdah.done set finished_at = now() - interval '2 hours'"


async def prune_hourly(conn: Any) -> Any:
    return await conn.fetchval(STATEMENTS["prune_partition"], HOUR, HOUR, *NOBODY)


@pytest.mark.parametrize("act", [form for form in FORMS if str(form) in ENDS and form.act != "delete"], ids=str)
async def test_a_job_that_ends_while_a_drop_waits_is_kept_for_its_time(three: Trio, act: Form):
    ground = await lay_within_one_partition(three.watch)
    await three.watch.execute(AN_HOUR_AGO)

    met = await meet(three, lambda conn: act.do(ground, conn), prune_hourly, commit=True)

    assert met.waited
    assert isinstance(met.second, int), "the partition is dropped"
    assert set(ENDS[str(act)]) <= set((await ground.portrait(three.watch))["jobs"])
    assert await wrongs(three.watch) == []


async def test_what_a_lease_still_names_is_not_dropped_with_its_partition(three: Trio):
    ground = await lay_within_one_partition(three.watch)
    await three.watch.execute(AN_HOUR_AGO)

    dropped = await prune_hourly(three.watch)

    assert dropped == 1, "only 0"
    assert {row["id"] for row in await three.watch.fetch("select id from howdah.done")} == set(ground.at(1, 2))


async def test_a_partition_is_found_whatever_a_backslash_means(three: Trio):
    await lay_within_one_partition(three.watch)
    await three.watch.execute(f"{AN_HOUR_AGO}; set standard_conforming_strings = off")
    try:
        assert await prune_hourly(three.watch) == 1
    finally:
        await three.watch.execute("reset standard_conforming_strings")
