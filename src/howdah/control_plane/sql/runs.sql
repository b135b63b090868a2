-- runs: the runs of a job, in order.
-- in:  $1 job int8
-- out: attempt, kind, worker, state, code, spec, result, started_at, finished_at

select attempt, kind, node as worker, state, code, spec, result, started_at, finished_at
from {schema}.run
where job = $1
order by attempt
