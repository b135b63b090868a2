-- enqueue_now: one job without a key that may start at once, in the way of the function enqueue, for roles that may write the
-- tables: two thirds of the time of the function. It reads the announcement, so that it notifies only while a worker sleeps.
-- in:  $1 kind, $2 args, $3 queue, $4 priority, $5 max_attempts, $6 timeout, $7 meta, $8 trace
-- out: id

with made as (
    insert into {schema}.job (id, timeout, priority, max_attempts, queue, kind, args, meta, trace)
    values (nextval({'schema.job_id'}), $6::float8, $4::int, $5::int, $3::text, $1::text, $2::text::json, $7::text::json, $8::text)
    returning id
),
run as (
    insert into {schema}.ready (lo, hi, priority, attempt, queue, kind)
    select id, id + 1, $4::int, 0, $3::text, $1::text from made
    returning lo, queue, priority
),
lane as (
    insert into {schema}.lane
    select queue, priority from run
    where not exists (select from {schema}.lane l where l.queue = run.queue and l.priority = run.priority)
)
select lo as id,
    case when pg_sequence_last_value(format('%I.sleep_marker_%s', {'schema'}, hashtext(queue) & 15)::regclass) > extract(epoch from clock_timestamp()) * 1000
         then {schema}.notify_workers(queue) end
from run
