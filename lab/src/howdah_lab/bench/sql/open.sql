-- open: what there is under the name of the schema.
-- in:  $1 schema text
-- out: found, mark (its comment)

select n.oid is not null as found, obj_description(n.oid, 'pg_namespace') as mark
from (select $1::text as name) wanted
left join pg_namespace n on n.nspname = wanted.name
