-- speed: how long the jobs that were enqueued last and are done waited and ran, of those that succeeded at once.
-- in:  $1 how many are looked at int
-- out: jobs, wait_p50, wait_p95, run_p50, run_p95 (seconds; null when there are none)

select count(*) as jobs,
    percentile_cont(0.5) within group (order by wait) as wait_p50,
    percentile_cont(0.95) within group (order by wait) as wait_p95,
    percentile_cont(0.5) within group (order by run) as run_p50,
    percentile_cont(0.95) within group (order by run) as run_p95
from (
    select d.took_us / 1e6 as run,
        greatest(0, extract(epoch from d.finished_at - greatest(j.enqueued_at, j.run_at)) - d.took_us / 1e6)::float8 as wait
    from (select * from {schema}.done order by id desc limit $1) d
    cross join lateral (select * from {schema}.job j where j.id = d.id offset 0) j
    where d.state = 'd' and d.attempt = 1 and d.took_us is not null
) lately
