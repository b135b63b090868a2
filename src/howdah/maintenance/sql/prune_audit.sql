-- prune_audit: delete old audit entries; never those of the last week.
-- in:  $1 seconds it is kept float8, $2 most int
-- out: entries deleted

select {schema}.prune_audit($1::float8, $2::int)
