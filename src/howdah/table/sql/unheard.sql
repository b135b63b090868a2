-- unheard: rows that were claimed under tokens whose claim was never answered.
-- in:  $1 tokens int8[]
-- out: id
--
-- Asked only when the table refuses to have one of them released: release then tries them in parts.

select t.{id} as id
from {namespace}.{table} as t
where t.{state} = 'processing'
  and t.{lease_token} = any($1::int8[])
order by t.{id}
