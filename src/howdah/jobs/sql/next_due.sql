-- next_due: when the next job becomes due.
-- in:  $1 queues text[] or null for all
-- out: due_in seconds (null: no job waits for its time)
--
-- Runs after the announcement of a sleeping worker. For all queues, the names of those with a job in `later` are read from
-- its index, from one to the next.

with recursive waiting as (
    (select l.queue from {schema}.later l where $1::text[] is null order by l.queue limit 1)
    union all
    select n.queue
    from waiting w
    cross join lateral (select l.queue from {schema}.later l where l.queue > w.queue order by l.queue limit 1) n
)
select extract(epoch from min(x.due_at) - clock_timestamp())::float8 as due_in
from (select w.queue as name from waiting w union all select unnest($1::text[])) q
cross join lateral (select l.due_at from {schema}.later l where l.queue = q.name order by l.due_at limit 1) x
where not exists (select from {schema}.queue c where c.name = q.name and c.paused offset 0)
