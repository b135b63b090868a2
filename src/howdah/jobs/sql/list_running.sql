-- list_running: ids of jobs under lease, newest first.
-- in:  $1 before int8, $2 queue, $3 kind (each text or null), $4 rows int
-- out: id
--
-- OFFSET 0 keeps the probes probes: as joins they may read all of history.

select held.id
from (
    select lease.token, i.id
    from {schema}.lease
    cross join lateral unnest(lease.los, lease.his) run(lo, hi)
    cross join lateral generate_series(run.lo, least(run.hi, $1) - 1) i(id)
    where lease.first_id < $1
    order by i.id desc
) held
where not exists (select from {schema}.done d where d.id = held.id offset 0)
  and not exists (select from {schema}.gone g where g.token = held.token and g.id = held.id offset 0)
  and (($2::text is null and $3::text is null)
    or exists (
        select from {schema}.job j
        where j.id = held.id
          and ($2::text is null or j.queue = $2)
          and ($3::text is null or j.kind = $3)
        offset 0))
order by held.id desc
limit $4
