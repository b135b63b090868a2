-- shares: what this node owns, and how it stands.
-- in:  $1 node int
-- out: announced (whether the node is known to have consumers), and the fields of Share; one row without a consumer when
--      the node owns nothing
--
-- Its own transaction, so it may begin the run.

select coalesce(n.consumers is not null and n.declared is not null, false) as announced,
    s.consumer, s.part, c.partitions, s.epoch, r.run, k.position, c.upto, c.paused, k.halted, k.failures,
    exists (select from {schema}.parked p where p.consumer = s.consumer and p.part = s.part and p.wanted_at is not null) as wanted
from (select {schema}.begin_run() as run) r
left join {schema}.node n on n.id = $1
left join ({schema}.share s
    join {schema}.consumer c on c.name = s.consumer
    join {schema}.checkpoint k on k.consumer = s.consumer and k.part = s.part) on s.node = $1
