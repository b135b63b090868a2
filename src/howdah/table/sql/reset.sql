-- reset: requeue or fail rows whose worker went silent.
-- in:  $1 ids, $2 their tokens int8[], $3 their last heartbeats float8[] (seconds since 1970), as read by silent
--      $4 when silent read it float8 (seconds since 1970), $5 seconds that may have passed since float8
--      $6 resets allowed int, $7 message of those past them text
-- out: id, state it went to, done (false: a trigger dropped the update)
--
-- Nothing is reset unless it is as it was when it was last looked at, and that is not long ago by the server's clock: a
-- process that was frozen in between, or a statement that was on its way for a minute, resets nothing.
-- The token is removed too: later reports of the silent worker for the row are rejected.
-- IN, not a join, finds what was written: it is hashed whatever the planner expects.

with told as materialized (
    select id, token, heard from unnest($1::pg_catalog.{id_type}[], $2::int8[], $3::float8[]) told(id, token, heard)
),
found as materialized (
    select t.{id} as id, t.{lease_token} as token, coalesce(t.{num_resets}, 0) >= $6::int as spent, t.{cancel} is true as cancel,
        coalesce(extract(epoch from coalesce(t.{last_heartbeat_at}, t.{started_at}))::float8, '-infinity') as heard
    from {namespace}.{table} as t
    where t.{id} = any($1::pg_catalog.{id_type}[])
      and t.{state} = 'processing'
      and extract(epoch from clock_timestamp())::float8 between $4::float8 and $4::float8 + $5::float8
    order by t.{id}
    for no key update skip locked
),
fate as materialized (
    select told.id, found.id is not null as silent,
        case when found.cancel then 'canceled' when found.spent then 'failed' else 'queued' end as state
    from told
    left join found on found.id = told.id and found.token is not distinct from told.token and found.heard = told.heard
),
back as (
    update {namespace}.{table} as t
    set {state} = fate.state::{state_namespace}.{state_type},
        {num_resets} = coalesce(t.{num_resets}, 0) + case when fate.state = 'queued' then 1 else 0 end,
        {queued_at} = case when fate.state = 'queued' then clock_timestamp() else t.{queued_at} end,
        {started_at} = case when fate.state <> 'queued' then t.{started_at} end,
        {finished_at} = case when fate.state <> 'queued' then clock_timestamp() end,
        {failure_message} = case when fate.state = 'failed' then $7::text end,
        {last_heartbeat_at} = case when fate.state <> 'queued' then t.{last_heartbeat_at} end,
        {lease_token} = null
    from fate
    where t.{id} = any(array(select id from fate where silent))
      and t.{id} = fate.id
      and fate.silent
    returning t.{id} as id
)
select id, state, id in (select id from back) as done
from fate
where silent
