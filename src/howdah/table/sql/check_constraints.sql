-- check_constraints: check constraints on one column alone.
-- in:  $1 oid int8, $2 column text
-- out: name, condition

select n.conname::text as name, pg_catalog.pg_get_expr(n.conbin, n.conrelid) as condition
from pg_catalog.pg_constraint n
join pg_catalog.pg_attribute a on a.attrelid = n.conrelid and a.attname = $2::text
where n.conrelid = $1::int8::oid
  and n.contype = 'c'
  and n.conkey = array[a.attnum]
