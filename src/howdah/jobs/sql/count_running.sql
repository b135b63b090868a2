-- count_running: how many jobs are under lease; from the runs of leases, not from jobs.
-- in:  $1 queue, $2 kind (each text or null)
-- out: jobs

select coalesce(sum(run.hi - run.lo - ended.jobs), 0)::int8 as jobs
from {schema}.lease
cross join lateral unnest(lease.los, lease.his) run(lo, hi)
cross join lateral (
    select count(*) as jobs
    from (
        select d.id from {schema}.done d where d.id >= run.lo and d.id < run.hi
        union
        select g.id from {schema}.gone g where g.token = lease.token and g.id >= run.lo and g.id < run.hi
    ) x
) ended
cross join lateral (
    -- of those that left the lease some are elsewhere by now, or deleted
    select j.queue, j.kind
    from {schema}.job j
    where j.id >= run.lo and j.id < run.hi
      and not exists (select from {schema}.gone g where g.token = lease.token and g.id = j.id offset 0)
    order by j.id
    limit 1
) job
where ($1::text is null or job.queue = $1)
  and ($2::text is null or job.kind = $2)
