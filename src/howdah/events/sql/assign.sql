-- assign: assign partitions to nodes. Locks no row that an owner locks, so it never waits for a batch.
-- in:  $1 consumers text[], $2 parts int[], $3 nodes int[], null for none; $4 the leader int, $5 its term timestamptz
-- out: number of partitions that changed their owner
--
-- Nothing is moved when another term has begun: the plan was made before that. The row of the leader is locked, so no term
-- begins before this is committed.

with term as materialized (
    select from {schema}.leader l where l.node = $4::int and l.since = $5::timestamptz for share
),
moved as (
    update {schema}.consumer_partition s
    set node = p.node, epoch = s.epoch + 1, assigned_at = clock_timestamp()
    from unnest($1::text[], $2::int[], $3::int[]) p(consumer, part, node)
    where s.consumer = p.consumer and s.part = p.part and s.node is distinct from p.node
      and (select count(*) from term) = 1
    returning 1
)
select count(*) as moved, max(pg_notify({schema}.log_channel(), 'assigned')::text) from moved
