-- repair: put jobs that are in no place back into their queues, and end leases of which nothing is left.
-- in:  $1 jobs to look at int, $2 seconds between two looks of all nodes together float8
-- out: looked (null: another node has just looked), requeued, ended (jobs without an attempt left, which failed), leases

select looked, requeued, ended, leases from {schema}.repair_next($1::int, $2::float8)
