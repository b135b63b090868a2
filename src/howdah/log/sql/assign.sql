-- assign: give shares to nodes. Locks nothing an owner locks, so it never waits for a batch.
-- in:  $1 consumers text[], $2 parts int[], $3 nodes int[], null for nobody
-- out: how many changed hands

with moved as (
    update {schema}.share s
    set node = p.node, epoch = s.epoch + 1, assigned_at = clock_timestamp()
    from unnest($1::text[], $2::int[], $3::int[]) p(consumer, part, node)
    where s.consumer = p.consumer and s.part = p.part and s.node is distinct from p.node
    returning 1
)
select count(*) as moved, max(pg_notify({schema}.log_channel(), 'assigned')::text) from moved
