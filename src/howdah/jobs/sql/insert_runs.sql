-- insert_runs: after COPY into job, in the same transaction: insert the due jobs as runs, the others by due time, and notify.
-- in:  $1 lo int8[], $2 hi int8[], $3 queue text[], $4 kind text[], $5 priority int2[]
--      $6 later ids int8[], $7 due timestamptz[], $8 queue text[], $9 kind text[], $10 priority int2[]
-- out: a count, not used

with ready as (
    insert into {schema}.ready (lo, hi, queue, kind, priority, attempt)
    select lo, hi, queue, kind, priority, 0
    from unnest($1::int8[], $2::int8[], $3::text[], $4::text[], $5::int2[]) x(lo, hi, queue, kind, priority)
    returning queue, priority
),
later as (
    insert into {schema}.later (id, due_at, queue, kind, priority, attempt)
    select id, due_at, queue, kind, priority, 0
    from unnest($6::int8[], $7::timestamptz[], $8::text[], $9::text[], $10::int2[]) x(id, due_at, queue, kind, priority)
    returning queue, priority
),
lanes as materialized (
    select distinct queue, priority from (select * from ready union all select * from later) x
),
fresh as (
    insert into {schema}.lane
    select queue, priority from lanes n
    where not exists (select from {schema}.lane l where l.queue = n.queue and l.priority = n.priority)
)
select count({schema}.notify_workers(queue)) from (select distinct queue from lanes) q
