-- progress: the progress that a job reported.
-- in:  $1 job int8
-- out: share, note

select share, note from {schema}.progress where id = $1
