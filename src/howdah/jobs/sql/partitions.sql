-- partitions: list the partitions of job that this role may read by name, without the default partition.
-- out: lo and hi: the ids from lo up to, but not including, hi

select substring(c.relname from '^job_([0-9]+)_')::int8 as lo, substring(c.relname from '_([0-9]+)$')::int8 as hi
from pg_catalog.pg_inherits i
join pg_catalog.pg_class c on c.oid = i.inhrelid
where i.inhparent = {'schema.job'}::regclass and c.relname ~ '^job_[0-9]+_[0-9]+$'
  and pg_catalog.has_table_privilege(c.oid, 'select')
order by 1
