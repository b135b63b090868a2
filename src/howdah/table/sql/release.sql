-- release: release rows claimed under tokens whose reply was lost, without charging an attempt.
-- in:  $1 tokens int8[], $2 ids, to release no others, or null
-- out: id, done (false: a trigger dropped the update)
--
-- None of these rows was begun: only the reply to the claim contains its id.

with unheard as materialized (
    select t.{id} as id
    from {namespace}.{table} as t
    where t.{state} = 'processing'
      and t.{lease_token} = any($1::int8[])
      and ($2::pg_catalog.{id_type}[] is null or t.{id} = any($2::pg_catalog.{id_type}[]))
    for no key update skip locked
),
back as (
    update {namespace}.{table} as t
    set {state} = 'queued', {started_at} = null, {lease_token} = null
    where t.{id} = any(array(select id from unheard))
    returning t.{id} as id
)
select id, id in (select id from back) as done
from unheard
