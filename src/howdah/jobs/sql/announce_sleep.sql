-- announce_sleep: fall asleep: hang the signs, then say who is in flight, when the next job is due, and which queues exist.
-- in:  $1 queues text[] or null for all, $2 milliseconds the sign lasts
-- out: in_flight, due_in, known
--
-- It commits asynchronously: an announcement lost in a crash is made again by the node that reconnects.

select in_flight, due_in, known
from set_config('synchronous_commit', 'off', true)
cross join {schema}.doze($1::text[], $2::int)
