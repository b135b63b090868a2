-- release: hand back whatever was claimed under tokens whose claim was never answered, charging nothing.
-- in:  $1 tokens int8[]
-- out: id
--
-- None of these rows was begun: only the answer to the claim would have told its id.

with unheard as materialized (
    select t.{id} as id
    from {namespace}.{table} as t
    where t.{state} = 'processing'
      and t.{lease_token} = any($1::int8[])
    for no key update skip locked
)
update {namespace}.{table} as t
set {state} = 'queued', {started_at} = null, {lease_token} = null
where t.{id} = any(array(select id from unheard))
returning t.{id} as id
