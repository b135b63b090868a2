-- progress: the reported progress of a job.
-- in:  $1 job int8
-- out: share, note, said_at

select share, note, said_at from {schema}.progress where id = $1
