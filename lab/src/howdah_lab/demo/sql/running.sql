-- running: the jobs under lease without an outcome, oldest first.
-- in:  $1 most int
-- out: id, kind, attempt, node, seconds, total

select j.id, j.kind, r.attempt, e.node, extract(epoch from clock_timestamp() - e.claimed_at)::float8 as seconds,
    count(*) over () as total
from {schema}.lease e
cross join lateral unnest(e.los, e.his, e.attempts) r(lo, hi, attempt)
cross join lateral generate_series(r.lo, r.hi - 1) i(id)
join {schema}.job j on j.id = i.id
where not exists (select from {schema}.done d where d.id = i.id)
  and not exists (select from {schema}.gone g where g.token = e.token and g.id = i.id)
order by e.claimed_at, j.id
limit $1
