-- held: which live jobs hold these keys.
-- in:  $1 keys text[]
-- out: key, id

select key, id from {schema}.job_key where key = any($1::text[])
