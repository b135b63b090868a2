-- whole_leases: leases of a worker of which nothing is left but the given jobs.
-- in:  $1 node int, $2 tokens int8[], $3 jobs int8[], one for each token
-- out: token

select l.token
from {schema}.lease l
where l.token = any($2::int8[]) and l.node = $1
  and not exists (
      select from unnest(l.los, l.his) r(lo, hi)
      cross join lateral generate_series(r.lo, r.hi - 1) i(id)
      where not exists (select from unnest($2::int8[], $3::int8[]) n(token, id) where n.token = l.token and n.id = i.id)
        and not exists (select from {schema}.done d where d.id = i.id)
        and not exists (select from {schema}.gone g where g.token = l.token and g.id = i.id))
