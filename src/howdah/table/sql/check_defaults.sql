-- check_defaults: the columns with a default or a generated value.
-- in:  $1 oid int8
-- out: name

select a.attname::text as name
from pg_catalog.pg_attribute a
join pg_catalog.pg_type t on t.oid = a.atttypid
where a.attrelid = $1::int8::oid
  and a.attnum > 0
  and not a.attisdropped
  and (a.atthasdef or a.attidentity <> '' or t.typdefault is not null)
