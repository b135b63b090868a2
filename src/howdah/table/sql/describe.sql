-- describe: what a name stands for.
-- in:  $1 name text, quoted
-- out: oid, namespace, name, kind (r table, p partitioned, v view, …)

select c.oid::int8 as oid, n.nspname::text as namespace, c.relname::text as name, c.relkind::text as kind
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.oid = to_regclass($1::text)
