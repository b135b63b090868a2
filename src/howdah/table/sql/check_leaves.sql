-- check_leaves: a table and its partitions, as plans name them.
-- in:  $1 oid int8
-- out: name

select c.relname::text as name
from pg_catalog.pg_class c
where c.oid = $1::int8::oid
   or c.oid in (select p.relid from pg_catalog.pg_partition_tree($1::int8::oid::regclass) p)
