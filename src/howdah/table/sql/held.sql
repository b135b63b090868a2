-- held: whether a row is still held under a token.
-- in:  $1 id, $2 token int8
-- out: id

select t.{id} as id
from {namespace}.{table} as t
where t.{id} = $1::pg_catalog.{id_type}
  and t.{state} = 'processing'
  and t.{lease_token} = $2::int8
