-- claim: lease due jobs to one node.
-- in:  $1 queues text[], in the order they are served
--      $2 room per queue int[]
--      $3 jobs wanted int
--      $4 node int
--      $5 lease seconds float8
--      $6 kinds text[]
--      $7 runs to lock at most int (the caller adapts it: a fixed number locks many runs to take two jobs)
--      $8, $9, $10 watermarks: queue text[], priority int2[], rid int8[]
--      $11 newest token the node has had int8
-- out: the jobs, by queue, priority (larger first) and arrival; what a run has in common with its first job only
--
-- The claim itself commits asynchronously: a claim that a crash forgets is a job that is still queued.
-- ctid is safe here and only here: SKIP LOCKED never waits, so no row can move between lock and delete.

with lanes as materialized (
    select q.place, q.room, l.queue, l.priority, coalesce(w.rid, 0) as rid
    from unnest($1::text[], $2::int4[]) with ordinality q(queue, room, place)
    cross join set_config('synchronous_commit', 'off', true)
    join (select distinct queue, priority from {schema}.lane) l on l.queue = q.queue
    left join unnest($8::text[], $9::int2[], $10::int8[]) w(queue, priority, rid)
        on w.queue = l.queue and w.priority = l.priority
    where q.room > 0
      and not exists (select from {schema}.queue c where c.name = q.queue and c.paused)
    order by q.place, l.priority desc
),
pick as materialized (
    select x.at, x.n, lanes.place, lanes.room, row_number() over () as pos
    from lanes
    cross join lateral (
        select r.ctid as at, r.hi - r.lo as n
        from {schema}.ready r
        where r.queue = lanes.queue
          and r.priority = lanes.priority
          and r.rid >= lanes.rid
          and r.kind = any($6::text[])
        order by r.rid
        limit least($7::int, lanes.room)
        for update skip locked
    ) x
    limit $7 * cardinality($1)
),
fit as materialized (
    -- k jobs of each run: within the room of its queue, then within what is wanted
    select at, n, greatest(0, least(k, $3::int - (sum(k) over (order by pos rows unbounded preceding) - k)))::int as k
    from (
        select at, n, pos,
            greatest(0, least(n, room - (sum(n) over (partition by place order by pos rows unbounded preceding) - n))) as k
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
mine as materialized (
    select * from took union all select * from split
),
lease as (
    insert into {schema}.lease (token, node, expires_at, first_id, end_id, remaining, rids, los, his, attempts)
    select {schema}.next_token($11::int8), $4::int, clock_timestamp() + $5::float8 * interval '1 second', min(lo), max(hi), sum(hi - lo),
        array_agg(rid), array_agg(lo), array_agg(hi), array_agg((attempt + 1)::int2)
    from mine
    having count(*) > 0
    returning token
)
select j.id, j.max_attempts, j.args, j.key, j.timeout, j.meta, j.trace, j.waited, j.rid, j.priority,
    case when j.rid is not null then m.queue end as queue,
    case when j.rid is not null then m.kind end as kind,
    case when j.rid is not null then m.attempt + 1 end as attempt,
    case when j.rid is not null then (select token from lease) end as token
from (select * from mine order by queue, priority desc, rid, lo) m
cross join lateral (
    select b.id, b.max_attempts, b.args, b.key, b.timeout, b.meta, b.trace,
        case when b.id = m.lo and m.attempt = 0
            then extract(epoch from clock_timestamp() - greatest(b.run_at, b.enqueued_at))::float8 end as waited,
        case when b.id = m.lo then m.priority end as priority,
        case when b.id = m.lo then m.rid end as rid
    from {schema}.job b
    where b.id >= m.lo and b.id < m.hi
    order by b.id
) j
