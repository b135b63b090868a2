-- ack: record the outcomes of attempts.
-- in:  $1 ids
--      $2 tokens int8[]
--      $3 states to go to text[]
--      $4 seconds until the next attempt float8[], null to leave process_after alone
--      $5 failure messages text[]
-- out: id, token, state: those held under these tokens; done (false: a trigger dropped the update);
--      locked (true: another transaction has locked the row: `token` and `state` are those it has, nothing was written)
--
-- A row that another transaction has locked is passed over, never waited for: one lock of the user's would delay every
-- other outcome of the node. It is returned as `locked` if it is still processing, and has to be reported again.
-- Rows are locked in id order, so that two acks never wait for each other in a circle; the token is compared
-- with what the lock found. LEFT joins because the planner takes an inner one for a single row, and then reads all
-- rows once for each. A row keeps its token when it ends: an ack whose reply was lost is recognised by it
-- when it comes again, and changes nothing.
-- IN, not a join, finds what was written: it is hashed whatever the planner expects.

with told as materialized (
    select id, token, state, delay, message
    from unnest($1::pg_catalog.{id_type}[], $2::int8[], $3::text[], $4::float8[], $5::text[])
        told(id, token, state, delay, message)
),
found as materialized (
    select t.{id} as id, t.{lease_token} as token, t.{state}::text as state, t.{cancel} is true as cancel
    from {namespace}.{table} as t
    where t.{id} = any($1::pg_catalog.{id_type}[])
    order by t.{id}
    for no key update skip locked
),
missed as materialized (
    select t.{id} as id, t.{lease_token} as token, t.{state}::text as state
    from {namespace}.{table} as t
    where t.{id} = any(array(select told.id from told where told.id not in (select found.id from found)))
),
ours as materialized (
    select told.id, told.token, told.delay, told.message, found.state = 'processing' as fresh,
        told.state = 'queued' and told.delay is null as released,
        case when found.cancel and told.state in ('errored', 'queued') then 'canceled' else told.state end as state,
        found.state as was
    from told
    left join found on found.id = told.id and found.token = told.token
),
over as (
    update {namespace}.{table} as t
    set {state} = ours.state::{state_namespace}.{state_type},
        {failure_message} = ours.message,
        {queued_at} = case when ours.state = 'queued' and not ours.released then clock_timestamp() else t.{queued_at} end,
        {started_at} = case when ours.state <> 'queued' then t.{started_at} end,
        {finished_at} = case when ours.state <> 'queued' then clock_timestamp() end,
        {process_after} = case
            when ours.state in ('errored', 'queued') and ours.delay is not null
            then clock_timestamp() + ours.delay * interval '1 second'
            else t.{process_after} end,
        {num_failures} = coalesce(t.{num_failures}, 0) + case when ours.state in ('errored', 'failed') then 1 else 0 end
    from ours
    where t.{id} = any(array(select id from ours where fresh))
      and t.{id} = ours.id
      and ours.fresh
    returning t.{id} as id
)
select id, token, state, not fresh or id in (select id from over) as done, false as locked
from ours
where fresh or was = state
union all
select id, token, state, state <> 'processing', state = 'processing'
from missed
