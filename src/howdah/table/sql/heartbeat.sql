-- heartbeat: renew the heartbeats of rows that are still processed.
-- in:  $1 ids, $2 tokens int8[] (each once)
-- out: id, token, cancel: those still held; free (false: it is locked), beat (whether it was written)
--
-- A locked row is still held and is skipped, never waited for: its handler may hold that lock, and no node resets a
-- locked row, nor one that was just locked.
-- IN, not a join, finds what was written: it is hashed whatever the planner expects.

with known as materialized (
    select t.{id} as id, t.{lease_token} as token, t.{cancel} is true as cancel
    from {namespace}.{table} as t
    where t.{id} = any($1::pg_catalog.{id_type}[])
      and t.{state} = 'processing'
      and t.{lease_token} = any($2::int8[])
),
free as materialized (
    select t.{id} as id
    from {namespace}.{table} as t
    where t.{id} = any(array(select id from known))
      and t.{state} = 'processing'
      and t.{lease_token} = any($2::int8[])
    order by t.{id}
    for no key update skip locked
),
beat as (
    update {namespace}.{table} as t
    set {last_heartbeat_at} = clock_timestamp()
    where t.{id} = any(array(select id from free))
    returning t.{id} as id
)
select id, token, cancel, id in (select id from free) as free, id in (select id from beat) as beat
from known
