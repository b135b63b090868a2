-- reset: take back rows whose worker went silent.
-- in:  $1 seconds of silence float8, $2 resets allowed int, $3 message of those past them text, $4 rows at most int
-- out: id, state it went to, seconds since it was last heard of
--
-- The token goes too: whatever the silent worker still says of the row is refused.

with silent as materialized (
    select t.{id} as id, coalesce(t.{num_resets}, 0) >= $2::int as spent, t.{cancel} is true as cancel,
        coalesce(t.{last_heartbeat_at}, t.{started_at}) as heard_at
    from {namespace}.{table} as t
    where t.{state} = 'processing'
      and coalesce(t.{last_heartbeat_at}, t.{started_at}, '-infinity') < now() - $1::float8 * interval '1 second'
    limit $4::int
    for no key update skip locked
),
fate as materialized (
    select id, heard_at, case when cancel then 'canceled' when spent then 'failed' else 'queued' end as state
    from silent
),
back as (
    update {namespace}.{table} as t
    set {state} = fate.state::{state_namespace}.{state_type},
        {num_resets} = coalesce(t.{num_resets}, 0) + case when fate.state = 'queued' then 1 else 0 end,
        {queued_at} = case when fate.state = 'queued' then clock_timestamp() else t.{queued_at} end,
        {started_at} = case when fate.state <> 'queued' then t.{started_at} end,
        {finished_at} = case when fate.state <> 'queued' then clock_timestamp() end,
        {failure_message} = case when fate.state = 'failed' then $3::text end,
        {last_heartbeat_at} = case when fate.state <> 'queued' then t.{last_heartbeat_at} end,
        {lease_token} = null
    from fate
    where t.{id} = any(array(select id from fate))
      and t.{id} = fate.id
)
select id, state, extract(epoch from clock_timestamp() - heard_at)::float8 as silent from fate
