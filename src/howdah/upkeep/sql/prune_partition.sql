-- prune_partition: drop the oldest partition that is past its time.
-- in:  $1 seconds done jobs are kept float8, $2 seconds failed and cancelled ones are kept float8
-- out: jobs dropped, null when there is nothing to drop

select {schema}.prune_partition(now() - $1::float8 * interval '1 second', now() - $2::float8 * interval '1 second')
