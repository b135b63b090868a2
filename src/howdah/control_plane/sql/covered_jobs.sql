-- covered_jobs: the reported jobs as the worker's leases have them: a worker must not finish jobs outside of its leases.
-- in:  $1 node int, $2 tokens int8[], $3 jobs int8[]
-- out: place in the arrays, from 1 on; attempt (null: the job is not under this lease); no row if the lease is not the worker's

select x.place, u.attempt
from unnest($2::int8[], $3::int8[]) with ordinality x(token, id, place)
join {schema}.lease l on l.token = x.token and l.node = $1
left join lateral (
    select r.attempt from unnest(l.los, l.his, l.attempts) r(lo, hi, attempt)
    where x.id >= r.lo and x.id < r.hi
    limit 1
) u on true
