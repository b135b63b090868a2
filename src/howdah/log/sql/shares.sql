-- shares: what this node owns, and how it stands.
-- in:  $1 node int
-- out: the fields of Share

select s.consumer, s.part, c.partitions, s.epoch, k.position, c.upto, c.paused, k.halted, k.failures,
    exists (select from {schema}.parked p where p.consumer = s.consumer and p.part = s.part and p.wanted_at is not null) as wanted
from {schema}.share s
join {schema}.consumer c on c.name = s.consumer
join {schema}.checkpoint k on k.consumer = s.consumer and k.part = s.part
where s.node = $1
