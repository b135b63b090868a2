-- claim: lease due jobs to one node.
-- in:  $1 queues text[], in the order they are served
--      $2 room per queue int[]
--      $3 jobs wanted int
--      $4 node int
--      $5 lease seconds float8
--      $6 kinds text[]
--      $7 runs to lock at most int (the caller adapts it: a fixed number locks many runs to take two jobs)
--      $8 watermarks jsonb: {queue: {priority: rid, "floor": rid, "above": priority}}; claims skip what arrived before,
--         the floor holds for the priorities above
--      $9 newest token the node has had int8
-- out: the jobs, by queue, priority (larger first) and arrival; what a run has in common with its first job only: the
--      newest arrival as rid, and in runs how many rows of ready it was
--
-- Queues and priorities are walked one after the other, only as far as the last run that is locked: no list of them is
-- made, sorted or joined, so the cost does not grow with their number. The watermarks are one jsonb value, searched per
-- queue: a join with arrays would compare each with each, since a generic plan expects them to be short.
-- OFFSET 0 keeps the planner from joining in another order.
--
-- Where there are many partitions, the caller replaces the table job by one of them, and lets `outside` be true for runs that
-- are not in it (howdah.jobs.partition): the plan then names no other partition.
--
-- The claim itself commits asynchronously: a claim that a crash forgets is a job that is still queued.
-- ctid is safe here and only here: SKIP LOCKED never waits, so no row can move between lock and delete.

with pick as materialized (
    select x.at, x.n, x.outside, q.place, q.room, row_number() over () as pos
    from set_config('synchronous_commit', 'off', true)
    cross join lateral (
        select u.*, $8::jsonb -> u.queue as marks
        from unnest($1::text[], $2::int4[]) with ordinality u(queue, room, place)
        offset 0
    ) q
    cross join lateral (
        select distinct l.priority from {schema}.lane l where l.queue = q.queue order by l.priority desc
    ) lane
    cross join lateral (
        select r.ctid as at, r.hi - r.lo as n, false as outside
        from {schema}.ready r
        where r.queue = q.queue
          and r.priority = lane.priority
          and r.rid >= greatest(0, (q.marks ->> lane.priority::text)::int8,
                case when lane.priority > (q.marks ->> 'above')::int then (q.marks ->> 'floor')::int8 end)
          and r.kind = any($6::text[])
        order by r.rid
        limit least($7::int, q.room)
        for update skip locked
    ) x
    where q.room > 0
      and not exists (select from {schema}.queue c where c.name = q.queue and c.paused offset 0)
    limit $7::int
),
fit as materialized (
    -- k jobs of each run: within the room of its queue, then within what is wanted; none after a run that is outside
    select at, n, greatest(0, least(k, $3::int - (sum(k) over (order by pos rows unbounded preceding) - k)))::int as k
    from (
        select at, n, pos,
            case when bool_or(outside) over (order by pos rows unbounded preceding) then 0
            else greatest(0, least(n, room - (sum(n) over (partition by place order by pos rows unbounded preceding) - n))) end as k
        from pick
    ) y
),
took as (
    delete from {schema}.ready r
    where r.ctid = any(array(select at from fit where k = n))
    returning r.rid, r.lo, r.hi, r.queue, r.kind, r.priority, r.attempt
),
split as (
    update {schema}.ready r
    set lo = r.lo + f.k
    from (select at, k from fit where k > 0 and k < n) f
    where r.ctid = f.at
    returning r.rid, r.lo - f.k as lo, r.lo as hi, r.queue, r.kind, r.priority, r.attempt
),
parts as (
    -- whether a single job continues the one before it: the next id, of the same kind and attempt
    select *, hi - lo = 1 and (lo, lo - 1, kind, attempt)
        is not distinct from (lag(hi) over w, lag(lo) over w, lag(kind) over w, lag(attempt) over w) as continues
    from (select * from took union all select * from split) x
    window w as (partition by queue, priority order by rid, lo)
),
mine as materialized (
    -- jobs that were enqueued one at a time become one run again: one range in the lease, one scan of job
    select min(rid) as rid, max(rid) as newest, count(*)::int as runs, min(lo) as lo, max(hi) as hi, queue, kind, priority, attempt
    from (
        select *, count(*) filter (where not continues) over (partition by queue, priority order by rid, lo rows unbounded preceding) as part
        from parts
    ) x
    group by queue, priority, part, kind, attempt
),
lease as (
    insert into {schema}.lease (token, node, expires_at, first_id, end_id, remaining, rids, los, his, attempts)
    select {schema}.next_token($9::int8), $4::int, clock_timestamp() + $5::float8 * interval '1 second', min(lo), max(hi), sum(hi - lo),
        array_agg(rid), array_agg(lo), array_agg(hi), array_agg((attempt + 1)::int2)
    from mine
    having count(*) > 0
    returning token
)
select j.id, j.max_attempts, j.args, j.key, j.timeout, j.meta, j.trace, j.waited, j.rid, j.priority,
    case when j.rid is not null then m.queue end as queue,
    case when j.rid is not null then m.kind end as kind,
    case when j.rid is not null then m.attempt + 1 end as attempt,
    case when j.rid is not null then (select token from lease) end as token,
    case when j.rid is not null then m.runs end as runs
from (select * from mine order by queue, priority desc, rid, lo) m
cross join lateral (
    select b.id, b.max_attempts, b.args, b.key, b.timeout, b.meta, b.trace,
        case when (b.id = m.lo or m.runs > 1) and m.attempt = 0
            then extract(epoch from clock_timestamp() - greatest(b.run_at, b.enqueued_at))::float8 end as waited,
        case when b.id = m.lo then m.priority end as priority,
        case when b.id = m.lo then m.newest end as rid
    from {schema}.job b
    where b.id >= m.lo and b.id < m.hi
    order by b.id
) j
