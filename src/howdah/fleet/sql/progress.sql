-- progress: how far a job is, by its own words.
-- in:  $1 job int8
-- out: share, note

select share, note from {schema}.progress where id = $1
