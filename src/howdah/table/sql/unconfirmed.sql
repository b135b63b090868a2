-- unconfirmed: rows claimed under tokens whose reply was lost.
-- in:  $1 tokens int8[]
-- out: id
--
-- Used only when the table rejects the release of one of them: release then tries them in parts.

select t.{id} as id
from {namespace}.{table} as t
where t.{state} = 'processing'
  and t.{lease_token} = any($1::int8[])
order by t.{id}
