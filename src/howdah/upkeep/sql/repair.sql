-- repair: put jobs that are in no place back into their queues, and end leases of which nothing is left.
-- in:  $1 id to begin at int8, $2 jobs to look at int
-- out: next_id (where to go on), looked, requeued, ended (jobs without an attempt left, which failed), leases

select next_id, looked, requeued, ended, leases from {schema}.repair($1, $2)
