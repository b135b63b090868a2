-- expire: expire the leases on these rows now: the next reset requeues those that are still processing.
-- in:  $1 ids, $2 tokens int8[]
-- out: id
--
-- 1970 is the mark of a worker that is known to be gone: reset need not check it twice.

with held as materialized (
    select t.{id} as id
    from {namespace}.{table} as t
    where t.{id} = any($1::pg_catalog.{id_type}[])
      and t.{state} = 'processing'
      and t.{lease_token} = any($2::int8[])
    order by t.{id}
    for no key update skip locked
)
update {namespace}.{table} as t
set {last_heartbeat_at} = 'epoch'
where t.{id} = any(array(select id from held))
returning t.{id} as id
