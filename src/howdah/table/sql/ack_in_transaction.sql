-- ack_in_transaction: record success as the last statement of the handler's own transaction.
-- in:  $1 id, $2 token int8
-- out: the id, or nothing when the row is no longer held

update {namespace}.{table} as t
set {state} = 'completed', {failure_message} = null, {finished_at} = clock_timestamp()
where t.{id} = $1::pg_catalog.{id_type}
  and t.{lease_token} = $2::int8
  and t.{state} = 'processing'
returning t.{id} as id
