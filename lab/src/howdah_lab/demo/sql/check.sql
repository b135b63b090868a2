-- check: is every job in exactly one place, and did every order happen exactly once?
-- out: jobs; lost: in no place; doubled: in two; ahead: not over yet; snoozed; slots of the schedule; what the orders say

with place as (
    select d.id, d.state::text as state from {schema}.done d
    union all
    select l.id, 'q' from {schema}.later l
    union all
    select i, 'q' from {schema}.ready r cross join lateral generate_series(r.lo, r.hi - 1) i
    union all
    select i, 'r'
    from {schema}.lease e
    cross join lateral unnest(e.los, e.his) u(lo, hi)
    cross join lateral generate_series(u.lo, u.hi - 1) i
    where not exists (select from {schema}.done d where d.id = i)
      and not exists (select from {schema}.gone g where g.token = e.token and g.id = i)
),
each as (
    select j.id, j.kind, j.run_at, count(p.id) as places, max(p.state) as state
    from {schema}.job j
    left join place p on p.id = j.id
    group by j.id, j.kind, j.run_at
)
select count(*) as jobs,
    count(*) filter (where places = 0) as lost,
    count(*) filter (where places > 1) as doubled,
    count(*) filter (where state in ('q', 'r')) as ahead,
    count(*) filter (where state = 'd') as done,
    count(*) filter (where state = 'f') as failed,
    count(*) filter (where state = 'c') as cancelled,
    count(*) filter (where state = 'f' and kind = any($1::text[])) as on_purpose,
    count(*) filter (where kind = 'ship') as ships,
    count(*) filter (where kind = 'send_receipt') as mailed,
    count(*) filter (where kind = 'charge' and state = 'd') as charges,
    count(*) filter (where kind = 'count_till') as slots,
    count(*) filter (where kind = 'count_till') - count(distinct run_at) filter (where kind = 'count_till') as slots_twice,
    (select count(*) from {schema}.attempt where outcome = 'retry') as retried,
    (select coalesce(sum(jobs), 0)::int8 from {schema}.tally where outcome = 'snoozed') as snoozed,
    (select count(*) from {shop}.orders where charged > 0) as charged,
    (select count(*) from {shop}.orders where charged > 1 or shipped > 1) as twice
from each
