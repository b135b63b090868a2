-- stuck: rows whose worker went silent, and that were not reset.
-- in:  $1 seconds of silence float8
-- out: rows, longest (seconds)

select count(*) as rows, extract(epoch from clock_timestamp() - min(coalesce(t.{last_heartbeat_at}, t.{started_at})))::float8 as longest
from {namespace}.{table} as t
where t.{state} = 'processing'
  and coalesce(t.{last_heartbeat_at}, t.{started_at}, '-infinity') < clock_timestamp() - $1::float8 * interval '1 second'
