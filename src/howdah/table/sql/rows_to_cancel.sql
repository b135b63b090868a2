-- rows_to_cancel: waiting rows with cancel set.
-- in:  $1 rows at most int, $2 ids to leave out
-- out: id

select t.{id} as id
from {namespace}.{table} as t
where t.{state} in ('queued', 'errored')
  and t.{cancel}
  and t.{id} <> all($2::pg_catalog.{id_type}[])
limit $1::int
for no key update skip locked
