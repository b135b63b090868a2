-- promote: due jobs become ready; neighbours become runs again.
-- in:  $1 queues text[], $2 at most so many per queue int
-- out: how many, and the seconds until the next one is due (null: none)
--
-- The time of the statement, not the clock: the clock moves while it runs, so no index can be searched with it, and all
-- that is not due yet would be read each time. It commits asynchronously: what a crash forgets is still due.

with due as (
    delete from {schema}.later
    where ctid = any(array(
        select x.at
        from unnest($1::text[]) q(queue)
        cross join lateral (
            select l.ctid as at
            from {schema}.later l
            where l.queue = q.queue and l.due_at <= statement_timestamp()
            order by l.due_at
            limit $2::int
            for update skip locked
        ) x))
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
    order by due_at
    returning 1
)
select (select count(*) from due) as promoted, (select count(*) from runs) as runs,
    (select extract(epoch from min(x.due_at) - clock_timestamp())::float8
     from unnest($1::text[]) q(queue)
     cross join lateral (
        select l.due_at from {schema}.later l
        where l.queue = q.queue and l.due_at > statement_timestamp()
        order by l.due_at limit 1) x) as due_in
from set_config('synchronous_commit', 'off', true)
