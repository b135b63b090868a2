-- depth: what waits, is scheduled and runs in every queue, and since when the oldest could have started.
-- out: queue, queued, scheduled, running, oldest (seconds; null: nothing waits)
--
-- Reads unfinished jobs only, never history: a row of `ready` stands for a whole run of jobs, a lease for a claim.
-- A due job that is not promoted yet counts as queued. Jobs under lease are looked up one by one: the limit and the
-- aggregates keep the planner from joining whole partitions, whatever its statistics say. The heads
-- of queues are read from the indexes, from one to the next, and the figures are added up by name, without a join.

with recursive head as (
    -- of each queue and priority
    (select r.queue, r.priority, r.lo from {schema}.ready r order by r.queue, r.priority, r.rid limit 1)
    union all
    select x.*
    from head h
    cross join lateral (
        select r.queue, r.priority, r.lo
        from {schema}.ready r
        where (r.queue, r.priority) > (h.queue, h.priority)
        order by r.queue, r.priority, r.rid
        limit 1
    ) x
),
running as (
    select j.queue, sum(r.hi - r.lo - ended.jobs)::int8 as jobs
    from {schema}.lease l
    cross join lateral unnest(l.los, l.his) r(lo, hi)
    cross join lateral (
        select b.queue from {schema}.job b where b.id >= r.lo and b.id < r.hi order by b.id limit 1
    ) j
    cross join lateral (
        select count(*) as jobs
        from (
            select d.id from {schema}.done d where d.id >= r.lo and d.id < r.hi
            union
            select g.id from {schema}.gone g where g.token = l.token and g.id >= r.lo and g.id < r.hi
        ) x
    ) ended
    group by j.queue
),
figures (queue, queued, scheduled, running, since) as (
    select queue, sum(hi - lo), 0, 0, null::timestamptz
    from {schema}.ready
    group by queue
    union all
    select queue,
        count(*) filter (where due_at <= clock_timestamp()),
        count(*) filter (where due_at > clock_timestamp()),
        0,
        case when min(due_at) <= clock_timestamp() then min(due_at) end
    from {schema}.later
    group by queue
    union all
    select queue, 0, 0, jobs, null
    from running
    union all
    -- a retry has waited only since its last attempt
    select h.queue, 0, 0, 0, greatest(j.since, (select max(a.ended_at) from {schema}.attempt a where a.id = h.lo))
    from head h
    cross join lateral (
        select coalesce(b.run_at, b.enqueued_at) as since from {schema}.job b where b.id = h.lo limit 1
    ) j
    union all
    select queue, 0, 0, 0, null
    from {schema}.lane
)
select queue, sum(queued)::int8 as queued, sum(scheduled)::int8 as scheduled, sum(running)::int8 as running,
    extract(epoch from clock_timestamp() - min(since))::float8 as oldest
from figures
group by queue
order by queue
