-- attributes: the columns of a relation.
-- in:  $1 oid int8
-- out: name, type (of a domain: what it is made of), its namespace, enum labels or null, length limit or -1,
--      whether it is not null, whether it is generated

select a.attname::text as name, t.typname::text as type, n.nspname::text as namespace,
    case when t.typtype = 'e' then array(select e.enumlabel::text from pg_catalog.pg_enum e where e.enumtypid = t.oid) end as labels,
    a.atttypmod as limited, a.attnotnull as required, a.attgenerated <> '' as generated
from pg_catalog.pg_attribute a
join pg_catalog.pg_type d on d.oid = a.atttypid
join pg_catalog.pg_type t on t.oid = case when d.typtype = 'd' then d.typbasetype else d.oid end
join pg_catalog.pg_namespace n on n.oid = t.typnamespace
where a.attrelid = $1::int8::oid
  and a.attnum > 0
  and not a.attisdropped
