-- announce_sleep: announce that a worker sleeps; return the open transactions, the time of the next due job, and the queues.
-- in:  $1 queues text[] or null for all, $2 milliseconds the announcement lasts
-- out: in_flight, due_in, known
--
-- It commits asynchronously: an announcement lost in a crash is made again by the node that reconnects.

select in_flight, due_in, known
from set_config('synchronous_commit', 'off', true)
cross join {schema}.announce_sleep($1::text[], $2::int)
