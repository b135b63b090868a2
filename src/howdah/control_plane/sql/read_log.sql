-- read_log: lines of a job's log after a line.
-- in:  $1 job int8, $2 after int8, $3 limit
-- out: seq, attempt, at, stream, line

select seq, attempt, at, stream, line
from {schema}.job_log
where id = $1 and seq > $2
order by seq
limit $3
