-- leased: one job under a lease of the node.
-- in:  $1 node int, $2 token int8, $3 job int8
-- out: attempt, queue, kind, key, max_attempts, last (true if nothing else is left of the lease)

select u.attempt, j.queue, j.kind, j.key, j.max_attempts,
    not exists (
        select from unnest(l.los, l.his) r(lo, hi)
        cross join lateral generate_series(r.lo, r.hi - 1) i(id)
        where i.id <> $3
          and not exists (select from {schema}.done d where d.id = i.id)
          and not exists (select from {schema}.gone g where g.token = $2 and g.id = i.id)) as last
from {schema}.lease l
cross join lateral unnest(l.los, l.his, l.attempts) u(lo, hi, attempt)
join {schema}.job j on j.id = $3
where l.token = $2 and l.node = $1 and $3 >= u.lo and $3 < u.hi
