-- check_indexes: the indexes of a table that can be used.
-- in:  $1 oid int8
-- out: name, whether it is the primary key, columns, those that descend, those with nulls first, predicate or null,
--      the columns in it

select c.relname::text as name, i.indisprimary as is_primary,
    array(select a.attname::text
          from generate_series(0, i.indnkeyatts - 1) n
          join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[n]
          order by n) as columns,
    array(select i.indoption[n] & 1 = 1 from generate_series(0, i.indnkeyatts - 1) n order by n) as descending,
    array(select i.indoption[n] & 2 = 2 from generate_series(0, i.indnkeyatts - 1) n order by n) as nulls_first,
    pg_catalog.pg_get_expr(i.indpred, i.indrelid) as predicate,
    array(select a.attname::text
          from pg_catalog.pg_depend d
          join pg_catalog.pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
          where d.classid = 'pg_catalog.pg_class'::regclass and d.objid = i.indexrelid and d.refobjid = i.indrelid) as speaks_of
from pg_catalog.pg_index i
join pg_catalog.pg_class c on c.oid = i.indexrelid
join pg_catalog.pg_am m on m.oid = c.relam
where i.indrelid = $1::int8::oid
  and i.indisvalid
  and i.indexprs is null
  and m.amname = 'btree'
