"""What must be true of the tables of jobs at every moment, whatever happened before: one checker, in plain SQL."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

WRONG = """
with leased as (
    select l.token, i.id, r.attempt
    from howdah.lease l
    cross join lateral unnest(l.los, l.his, l.attempts) r(lo, hi, attempt)
    cross join lateral generate_series(r.lo, r.hi - 1) i(id)
    where not exists (select from howdah.gone g where g.token = l.token and g.id = i.id)
      and not exists (select from howdah.done d where d.id = i.id)
),
place as (
    select i.id, 'ready' as name, r.attempt + 1 as attempt, r.queue, r.kind, r.priority
    from howdah.ready r cross join lateral generate_series(r.lo, r.hi - 1) i(id)
    union all
    select l.id, 'later', l.attempt + 1, l.queue, l.kind, l.priority from howdah.later l
    union all
    select h.id, 'lease ' || h.token, h.attempt, null, null, null
    from leased h where exists (select from howdah.job j where j.id = h.id)
    union all
    select d.id, 'done', d.attempt, null, null, null from howdah.done d
)
select 'job ' || j.id || ' is in no place' as wrong
from howdah.job j where not exists (select from place p where p.id = j.id)
union all
select 'job ' || p.id || ' is in more than one place: ' || string_agg(p.name, ', ' order by p.name)
from place p group by p.id having count(*) > 1
union all
select 'job ' || p.id || ' in ' || p.name || ' does not exist'
from place p where not exists (select from howdah.job j where j.id = p.id)
union all
select 'job ' || p.id || ' in ' || p.name || ' is at attempt ' || p.attempt || ' of ' || j.max_attempts
from place p join howdah.job j on j.id = p.id
where p.attempt > j.max_attempts or p.attempt < case p.name when 'done' then 0 else 1 end
union all
select 'job ' || p.id || ' waits in ' || p.name || ' as another than it is'
from place p join howdah.job j on j.id = p.id
where (p.queue, p.kind, p.priority) is distinct from (j.queue, j.kind, j.priority) and p.queue is not null
union all
select 'job ' || p.id || ' waits in ' || p.name || ' although somebody cancelled it'
from place p join howdah.cancel_request c on c.id = p.id where p.name in ('ready', 'later')
union all
select 'job ' || j.id || ' lives without its key ' || j.key
from howdah.job j
where j.key is not null
  and not exists (select from howdah.done d where d.id = j.id)
  and not exists (select from howdah.job_key k where k.key = j.key and k.id = j.id)
union all
select 'key ' || k.key || ' is held by job ' || k.id || ', which does not live'
from howdah.job_key k
where not exists (select from howdah.job j where j.id = k.id and j.key = k.key)
   or exists (select from howdah.done d where d.id = k.id)
union all
select 'lease ' || l.token || ' counts ' || l.remaining || ' jobs without an outcome, and has ' || count(*)
from howdah.lease l join leased h on h.token = l.token group by l.token having l.remaining < count(*)
union all
select 'lease ' || l.token || ' does not span its runs'
from howdah.lease l
where exists (select from unnest(l.los, l.his) r(lo, hi) where r.lo < l.first_id or r.hi > l.end_id or r.lo >= r.hi)
"""


async def wrongs(conn: Any, jobs: Collection[int] | None = None) -> list[str]:
    """All that is wrong with the tables; ``jobs``: those that must be there, no more and no less."""
    found = [str(row["wrong"]) for row in await conn.fetch(WRONG)]
    if jobs is not None:
        there = {row["id"] for row in await conn.fetch("select id from howdah.job")}
        found += [f"job {id} is lost" for id in sorted(set(jobs) - there)]
        found += [f"job {id} came from nowhere" for id in sorted(there - set(jobs))]
    return found
