-- check_names_in_use: which of these names a schema already has.
-- in:  $1 schema text, $2 names text[]
-- out: name

select c.relname::text as name
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = $1::text
  and c.relname = any($2::text[])
