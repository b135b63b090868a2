"""The jobs of ``kit.interleave_jobs`` within one partition that can be dropped."""

from __future__ import annotations

from typing import Any

from kit.interleave_jobs import PreparedJobs, lay
from kit.roles import OWNER

SIZE = 100
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


async def make_partition(conn: Any, low: int) -> None:
    """Drop all partitions but the default one, and make the one from this id on."""
    await conn.execute(DROP)
    for part in ("job", "done"):
        name = f"howdah.{part}_{low}_{low + SIZE}"
        await conn.execute(
            f"create table {name} partition of howdah.{part} for values from ({low}) to ({low + SIZE});"
            f" alter table {name} owner to {OWNER}"
        )


async def lay_within_one_partition(conn: Any) -> PreparedJobs:
    """The same jobs, and ids were given out beyond their partition."""
    await conn.execute("delete from howdah.job; delete from howdah.done")
    low = await conn.fetchval("select (nextval('howdah.job_id') / $1 + 1) * $1", SIZE)
    await make_partition(conn, low)
    await conn.execute("select setval('howdah.job_id', $1)", low)
    prepared = await lay(conn)
    await conn.execute("select setval('howdah.job_id', $1)", low + SIZE)
    return prepared
