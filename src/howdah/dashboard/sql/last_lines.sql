-- last_lines: the last log lines of a job, newest first.
-- in:  $1 job int8, $2 rows int
-- out: attempt, at, stream, line

select attempt, at, stream, line from {schema}.job_log where id = $1 order by seq desc limit $2
