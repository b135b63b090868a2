-- prune_audit: forget who did what long ago; never what was done within a week.
-- in:  $1 seconds it is kept float8, $2 most int
-- out: entries deleted

select {schema}.prune_audit($1::float8, $2::int)
