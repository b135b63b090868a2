-- owners: every partition and its owner.
-- out: consumer, part, node, partitions, upto

select s.consumer, s.part, s.node, c.partitions, c.upto
from {schema}.consumer_partition s
join {schema}.consumer c on c.name = s.consumer
order by s.consumer, s.part
