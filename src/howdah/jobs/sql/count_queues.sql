-- count_queues: every queue with what waits, runs and lately finished in it.
-- out: name, queued, scheduled, running, oldest_age (seconds the first in line has waited, null when no job waits),
--      paused, paused_at, paused_by, done_hour, done_day, failed_hour, failed_day
--
-- Counted from runs, leases and the tally, never from history. Due jobs that are not promoted to `ready` yet count
-- as queued. The heads of queues are read from the indexes, from one to the next, and the figures are added up by name: no
-- join, so the cost is that of the queues with jobs, and a list of names.

with recursive head as (
    -- of each queue and priority
    (select r.queue, r.priority, r.lo, r.attempt from {schema}.ready r order by r.queue, r.priority, r.rid limit 1)
    union all
    select x.*
    from head h
    cross join lateral (
        select r.queue, r.priority, r.lo, r.attempt
        from {schema}.ready r
        where (r.queue, r.priority) > (h.queue, h.priority)
        order by r.queue, r.priority, r.rid
        limit 1
    ) x
),
due as (
    (select l.queue, l.due_at from {schema}.later l order by l.queue, l.due_at limit 1)
    union all
    select x.*
    from due d
    cross join lateral (
        select l.queue, l.due_at from {schema}.later l where l.queue > d.queue order by l.queue, l.due_at limit 1
    ) x
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
finished as (
    select queue,
        sum(jobs) filter (where outcome = 'ok' and at > now() - interval '1 hour') as done_hour,
        sum(jobs) filter (where outcome = 'ok') as done_day,
        sum(jobs) filter (where outcome in ('failed', 'poison') and at > now() - interval '1 hour') as failed_hour,
        sum(jobs) filter (where outcome in ('failed', 'poison')) as failed_day
    from {schema}.tally
    where at > now() - interval '1 day'
    group by queue
),
figures (
    name, queued, scheduled, running, since, paused, paused_at, paused_by, done_hour, done_day, failed_hour, failed_day
) as (
    select queue, sum(hi - lo), 0, 0, null::timestamptz, false, null::timestamptz, null, 0, 0, 0, 0
    from {schema}.ready
    group by queue
    union all
    select queue, count(*) filter (where due_at <= now()), count(*) filter (where due_at > now()), 0,
        null, false, null, null, 0, 0, 0, 0
    from {schema}.later
    group by queue
    union all
    select queue, 0, 0, jobs, null, false, null, null, 0, 0, 0, 0 from running
    union all
    select head.queue, 0, 0, 0, job.since, false, null, null, 0, 0, 0, 0
    from head
    cross join lateral (
        select greatest(j.enqueued_at, j.run_at, case when head.attempt > 0 then (
            select max(a.ended_at) from {schema}.attempt a where a.id = j.id) end) as since
        from {schema}.job j
        where j.id = head.lo
        offset 0
    ) job
    union all
    select queue, 0, 0, 0, due_at, false, null, null, 0, 0, 0, 0 from due where due_at <= now()
    union all
    select queue, 0, 0, 0, null, false, null, null, done_hour, done_day, failed_hour, failed_day from finished
    union all
    select queue, 0, 0, 0, null, false, null, null, 0, 0, 0, 0 from {schema}.lane
    union all
    select name, 0, 0, 0, null, paused, paused_at, paused_by, 0, 0, 0, 0 from {schema}.queue
)
select name, sum(queued)::int8 as queued, sum(scheduled)::int8 as scheduled, sum(running)::int8 as running,
    extract(epoch from clock_timestamp() - min(since))::float8 as oldest_age,
    bool_or(paused) as paused, max(paused_at) as paused_at, max(paused_by) as paused_by,
    coalesce(sum(done_hour), 0)::int8 as done_hour, coalesce(sum(done_day), 0)::int8 as done_day,
    coalesce(sum(failed_hour), 0)::int8 as failed_hour, coalesce(sum(failed_day), 0)::int8 as failed_day
from figures
group by name
order by name
