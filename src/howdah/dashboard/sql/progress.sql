-- progress: the reported progress of a job.
-- in:  $1 job int8
-- out: share, note, reported_at

select share, note, reported_at from {schema}.progress where id = $1
