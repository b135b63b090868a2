-- promote: due jobs become ready; neighbours become runs again.
-- in:  $1 queues text[], or null for all, $2 about so many per queue int
-- out: how many, in how many runs, the seconds until the next one is due (null: none), and the newest arrival number
--
-- For all queues, the names are read from the index of later itself, from one queue to the next: of ten thousand queues
-- only those with a job in later are looked at.
--
-- When more jobs of a queue are due than one call takes, as after a million were scheduled for the same second, those that are
-- due first bring the jobs with neighbouring ids along, as far as these are due at most a second later. In the order of their
-- due times the ids may be shuffled, and each job would be a run of its own.
--
-- The time of the statement, not the clock: the clock moves while it runs, so no index can be searched with it, and all
-- that is not due yet would be read each time. It commits asynchronously: what a crash forgets is still due.

with recursive waiting as (
    (select l.queue from {schema}.later l where $1::text[] is null order by l.queue limit 1)
    union all
    select n.queue
    from waiting w
    cross join lateral (select l.queue from {schema}.later l where l.queue > w.queue order by l.queue limit 1) n
),
names as materialized (
    -- crowded: more jobs are due than one call takes
    select n.queue,
        exists (select from (select from {schema}.later l where l.queue = n.queue and l.due_at <= statement_timestamp() limit 1 offset $2::int) x) as crowded
    from (select queue from waiting union all select unnest($1::text[])) n
),
blocks as materialized (
    select distinct on (q.queue, h.id / 64) q.queue, h.id / 64 * 64 as lo, h.due_at
    from names q
    cross join lateral (
        select l.id, l.due_at
        from {schema}.later l
        where l.queue = q.queue and l.due_at <= statement_timestamp()
        order by l.due_at
        limit $2::int / 25
    ) h
    where q.crowded
    order by q.queue, h.id / 64, h.due_at
),
neighbours as materialized (
    select b.queue, x.at
    from blocks b
    cross join lateral (
        select l.ctid as at
        from {schema}.later l
        where l.id >= b.lo and l.id < b.lo + 64
          and l.queue = b.queue
          and l.due_at <= least(statement_timestamp(), b.due_at + interval '1 second')
        order by l.id
        for update skip locked
    ) x
),
due as (
    delete from {schema}.later
    where ctid = any(array(
        select n.at from neighbours n
        union all
        select x.at
        from names q
        cross join lateral (
            select l.ctid as at
            from {schema}.later l
            where l.queue = q.queue and l.due_at <= statement_timestamp()
            order by l.due_at
            limit $2::int
            for update skip locked
        ) x
        where not q.crowded or (select count(*) from neighbours n where n.queue = q.queue) < $2::int))
    returning id, due_at, queue, kind, priority, attempt
),
runs as (
    insert into {schema}.ready (lo, hi, queue, kind, priority, attempt)
    select lo, hi, queue, kind, priority, attempt
    from (
        select min(id) as lo, max(id) + 1 as hi, queue, kind, priority, attempt, min(due_at) as due_at
        from (
            select *, row_number() over w as n, id - row_number() over w as g
            from due
            window w as (partition by queue, kind, priority, attempt order by id)
        ) x
        group by queue, kind, priority, attempt, g, n / 512
    ) y
    order by due_at, lo
    returning 1
)
select (select count(*) from due) as promoted, (select count(*) from runs) as runs,
    (select extract(epoch from min(x.due_at) - clock_timestamp())::float8
     from names q
     cross join lateral (
        select l.due_at from {schema}.later l
        where l.queue = q.queue and l.due_at > statement_timestamp()
        order by l.due_at limit 1) x) as due_in,
    coalesce(pg_sequence_last_value({'schema.arrival'}::regclass), 0) as arrival
from set_config('synchronous_commit', 'off', true)
