-- fail: fail a row whose update the table rejects.
-- in:  $1 id, $2 token int8 or null, $3 message text
-- out: id: it was held, and not locked; done (false: a trigger dropped the update)
--
-- It writes as little as possible, since the rejected part may be a counter or another column.

with held as materialized (
    select t.{id} as id
    from {namespace}.{table} as t
    where t.{id} = $1::pg_catalog.{id_type}
      and t.{state} = 'processing'
      and t.{lease_token} is not distinct from $2::int8
    for no key update skip locked
),
over as (
    update {namespace}.{table} as t
    set {state} = 'failed', {failure_message} = $3::text, {finished_at} = clock_timestamp()
    where t.{id} = any(array(select id from held))
    returning t.{id} as id
)
select id, id in (select id from over) as done
from held
