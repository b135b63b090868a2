-- reset: requeue the jobs of expired leases, and mark program runs without a lease as lost; safe on every node at once.
-- in:  $1 leases at most int, $2 those of nodes bool, $3 those of remote workers bool
--      $4 the server's time until which these two hold float8 (seconds since 1970), or null
-- out: leases, requeued, ended
--
-- A run is looked at as things stood before this statement, so its loss is noted by the next one.

with orphan as (
    update {schema}.run r set state = 'lost', code = 'STALE_WORKER', finished_at = clock_timestamp()
    where r.state = 'running'
      and not exists (
          select from {schema}.lease l
          cross join lateral unnest(l.los, l.his, l.attempts) u(lo, hi, attempt)
          where r.job >= u.lo and r.job < u.hi and u.attempt = r.attempt and l.node = r.node
            and r.job >= l.first_id and r.job < l.end_id
            and not exists (select from {schema}.gone g where g.token = l.token and g.id = r.job)
            and not exists (select from {schema}.done d where d.id = r.job))
)
select r.leases, r.requeued, r.ended
from (select $4::float8 is null or extract(epoch from clock_timestamp()) <= $4::float8 as holds) judged
cross join lateral {schema}.reset($1, $2::bool and judged.holds, $3::bool and judged.holds) r
