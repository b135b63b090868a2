-- waiting_jobs: jobs that wait, lo <= id < hi: a half in runs of a hundred, as a bulk enqueue leaves them, a third one by
-- one, the rest not due yet.
-- in:  $1 lo int8, $2 hi int8

with job as (
    insert into {schema}.job (id, enqueued_at, run_at, queue, kind, args)
    select i, now() - interval '5 minutes', case when i >= p.later then now() + interval '1 hour' end,
        'queue ' || i / 100 % 20, 'kind ' || i / 100 % 20,
        json_build_object('user_id', i, 'email', format('user%s@example.com', i), 'template', 'welcome')
    from (select $1::int8 + ($2::int8 - $1) / 2 / 100 * 100 as singles, $1 + ($2 - $1) * 5 / 6 as later) p
    cross join lateral generate_series($1, $2 - 1) i
),
runs as (
    insert into {schema}.ready (lo, hi, priority, attempt, queue, kind)
    select i, i + 100, 0, 0, 'queue ' || i / 100 % 20, 'kind ' || i / 100 % 20
    from generate_series($1, $1 + ($2 - $1) / 2 / 100 * 100 - 1, 100) i
),
singles as (
    insert into {schema}.ready (lo, hi, priority, attempt, queue, kind)
    select i, i + 1, 0, 0, 'queue ' || i / 100 % 20, 'kind ' || i / 100 % 20
    from generate_series($1 + ($2 - $1) / 2 / 100 * 100, $1 + ($2 - $1) * 5 / 6 - 1) i
)
insert into {schema}.later (id, due_at, priority, attempt, queue, kind)
select i, now() + interval '1 hour' + (i % 3600) * interval '1 second', 0, 0, 'queue ' || i / 100 % 20, 'kind ' || i / 100 % 20
from generate_series($1 + ($2 - $1) * 5 / 6, $2 - 1) i
