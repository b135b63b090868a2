-- existing: which of these rows exist.
-- in:  $1 ids
-- out: id

select t.{id} as id
from {namespace}.{table} as t
where t.{id} = any($1::pg_catalog.{id_type}[])
