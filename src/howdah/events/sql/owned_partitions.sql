-- owned_partitions: the partitions this node owns, and their state.
-- in:  $1 node int
-- out: announced (whether the node is known to have consumers), and the fields of Partition; one row without a consumer when
--      the node owns nothing
--
-- Runs in a transaction of its own, so it may begin the run.

select coalesce(n.consumers is not null and n.declared is not null, false) as announced,
    s.consumer, s.part, c.partitions, s.epoch, r.run, k.position, c.upto, c.paused, k.halted, k.failures,
    exists (select from {schema}.parked p where p.consumer = s.consumer and p.part = s.part and p.wanted_at is not null) as wanted
from (select {schema}.begin_run() as run) r
left join {schema}.node n on n.id = $1
left join ({schema}.consumer_partition s
    join {schema}.consumer c on c.name = s.consumer
    join {schema}.checkpoint k on k.consumer = s.consumer and k.part = s.part) on s.node = $1
