-- runs: the runs of a build, in order.
-- in:  $1 job int8
-- out: attempt, kind, node, state, code, spec, result, started_at, finished_at

select attempt, kind, node, state, code, spec, result, started_at, finished_at
from {schema}.run
where job = $1
order by attempt
limit 100
