-- ack_batch: record the success of a batch of rows as the last statement of its handler's own transaction.
-- in:  $1 ids
--      $2 tokens int8[] under which they are held, each once
-- out: id, token: the rows that were held; the caller compares both, and rolls back when one is missing
--
-- Rows are locked in id order, so that a batch and a heartbeat never wait for each other in a circle.

with held as materialized (
    select t.{id} as id
    from {namespace}.{table} as t
    where t.{id} = any($1::pg_catalog.{id_type}[])
      and t.{lease_token} = any($2::int8[])
      and t.{state} = 'processing'
    order by t.{id}
    for no key update
)
update {namespace}.{table} as t
set {state} = 'completed', {failure_message} = null, {finished_at} = clock_timestamp()
where t.{id} = any(array(select held.id from held))
  and t.{lease_token} = any($2::int8[])
  and t.{state} = 'processing'
returning t.{id} as id, t.{lease_token} as token
