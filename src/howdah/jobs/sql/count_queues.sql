-- count_queues: every queue with what waits, runs and lately finished in it.
-- out: name, queued, scheduled, running, oldest_age (seconds the first in line has waited, null when no job waits),
--      paused, paused_at, paused_by, done_hour, done_day, failed_hour, failed_day
--
-- Counted from runs, leases and the tally, never from history. Due jobs that are not promoted to `ready` yet count
-- as queued.

with waiting as (
    select queue, sum(hi - lo)::int8 as jobs
    from {schema}.ready
    group by queue
),
scheduled as (
    select queue, count(*) filter (where due_at > now()) as jobs, count(*) filter (where due_at <= now()) as due
    from {schema}.later
    group by queue
),
running as (
    select job.queue, sum(run.hi - run.lo - ended.jobs)::int8 as jobs
    from {schema}.lease
    cross join lateral unnest(lease.los, lease.his) run(lo, hi)
    cross join lateral (
        -- of those that left the lease some are elsewhere by now, or deleted
        select j.queue
        from {schema}.job j
        where j.id >= run.lo and j.id < run.hi
          and not exists (select from {schema}.gone g where g.token = lease.token and g.id = j.id offset 0)
        order by j.id
        limit 1
    ) job
    cross join lateral (
        select count(*) as jobs
        from (
            select d.id from {schema}.done d where d.id >= run.lo and d.id < run.hi
            union
            select g.id from {schema}.gone g where g.token = lease.token and g.id >= run.lo and g.id < run.hi
        ) x
    ) ended
    group by job.queue
),
oldest as (
    select queue, min(since) as since
    from (
        select lane.queue, job.since
        from (select distinct queue, priority from {schema}.lane) lane
        cross join lateral (
            select r.lo, r.attempt
            from {schema}.ready r
            where r.queue = lane.queue
              and r.priority = lane.priority
            order by r.rid
            limit 1
        ) first
        cross join lateral (
            select greatest(j.enqueued_at, j.run_at, case when first.attempt > 0 then (
                select max(a.ended_at) from {schema}.attempt a where a.id = j.id) end) as since
            from {schema}.job j
            where j.id = first.lo
            offset 0
        ) job
        union all
        select lane.queue, due.due_at
        from (select distinct queue from {schema}.lane) lane
        cross join lateral (
            select l.due_at
            from {schema}.later l
            where l.queue = lane.queue
              and l.due_at <= now()
            order by l.due_at
            limit 1
        ) due
    ) heads
    group by queue
),
lately as (
    select queue,
        sum(jobs) filter (where outcome = 'ok' and at > now() - interval '1 hour') as done_hour,
        sum(jobs) filter (where outcome = 'ok') as done_day,
        sum(jobs) filter (where outcome in ('failed', 'poison') and at > now() - interval '1 hour') as failed_hour,
        sum(jobs) filter (where outcome in ('failed', 'poison')) as failed_day
    from {schema}.tally
    where at > now() - interval '1 day'
    group by queue
),
named as (
    select queue as name from {schema}.lane
    union
    select name from {schema}.queue
    union
    select queue from lately
)
select named.name,
    coalesce(waiting.jobs, 0) + coalesce(scheduled.due, 0) as queued,
    coalesce(scheduled.jobs, 0) as scheduled,
    coalesce(running.jobs, 0) as running,
    extract(epoch from clock_timestamp() - oldest.since)::float8 as oldest_age,
    coalesce(q.paused, false) as paused, q.paused_at, q.paused_by,
    coalesce(lately.done_hour, 0)::int8 as done_hour,
    coalesce(lately.done_day, 0)::int8 as done_day,
    coalesce(lately.failed_hour, 0)::int8 as failed_hour,
    coalesce(lately.failed_day, 0)::int8 as failed_day
from named
left join waiting on waiting.queue = named.name
left join scheduled on scheduled.queue = named.name
left join running on running.queue = named.name
left join oldest on oldest.queue = named.name
left join {schema}.queue q on q.name = named.name
left join lately on lately.queue = named.name
order by named.name
