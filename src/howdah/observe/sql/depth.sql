-- depth: what waits, is scheduled and runs in every queue, and since when the oldest could have started.
-- out: queue, queued, scheduled, running, oldest (seconds; null: nothing waits)
--
-- Reads unfinished jobs only, never history: a row of `ready` stands for a whole run of jobs, a lease for a claim.
-- A due job that is not promoted yet counts as queued. Jobs under lease are looked up one by one: the limit and the
-- aggregates keep the planner from joining whole partitions, whatever its statistics say.

with ready as (
    select queue, sum(hi - lo)::int8 as jobs
    from {schema}.ready
    group by queue
),
later as (
    select queue,
        count(*) filter (where due_at <= clock_timestamp()) as due,
        count(*) filter (where due_at > clock_timestamp()) as jobs,
        min(due_at) as due_at
    from {schema}.later
    group by queue
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
first as (
    -- the head of each lane; a retry has waited only since its last attempt
    select l.queue, min(greatest(j.since, (select max(a.ended_at) from {schema}.attempt a where a.id = r.lo))) as since
    from (select distinct queue, priority from {schema}.lane) l
    cross join lateral (
        select x.lo
        from {schema}.ready x
        where x.queue = l.queue and x.priority = l.priority
        order by x.rid
        limit 1
    ) r
    cross join lateral (
        select coalesce(b.run_at, b.enqueued_at) as since from {schema}.job b where b.id = r.lo limit 1
    ) j
    group by l.queue
)
select q.queue,
    coalesce(ready.jobs, 0) + coalesce(later.due, 0) as queued,
    coalesce(later.jobs, 0) as scheduled,
    coalesce(running.jobs, 0) as running,
    extract(epoch from clock_timestamp()
        - least(first.since, case when later.due > 0 then later.due_at end))::float8 as oldest
from (select distinct queue from {schema}.lane) q
left join ready on ready.queue = q.queue
left join later on later.queue = q.queue
left join running on running.queue = q.queue
left join first on first.queue = q.queue
order by q.queue
