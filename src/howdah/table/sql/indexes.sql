-- indexes: whether rows can be found by a column.
-- in:  $1 oid int8, $2 column text
-- out: found: an index begins with it; single: no two rows can share it

select coalesce(bool_or(true), false) as found,
    coalesce(bool_or(i.indisunique and i.indnkeyatts = 1), false) as single
from pg_catalog.pg_index i
join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
where i.indrelid = $1::int8::oid
  and a.attname = $2::text
  and i.indpred is null
  and i.indisvalid
