-- held: what nodes hold under leases now.
-- in:  $1 nodes int[], $2 leases at most int
-- out: node, queue, jobs, since, ids (the first five)

select held.node, held.queue, count(*) as jobs, min(held.claimed_at) as since,
    (array_agg(held.id order by held.claimed_at, held.id))[1:5] as ids
from (
    select l.node, l.claimed_at, i.id, j.queue
    from (select * from {schema}.lease e where e.node = any($1::int[]) order by e.token limit $2) l
    cross join lateral unnest(l.los, l.his) r(lo, hi)
    cross join lateral (select y.queue from {schema}.job y where y.id = r.lo offset 0) j
    cross join lateral generate_series(r.lo, r.hi - 1) i(id)
    where not exists (select from {schema}.done d where d.id = i.id offset 0)
      and not exists (select from {schema}.gone g where g.token = l.token and g.id = i.id offset 0)
) held
group by held.node, held.queue
