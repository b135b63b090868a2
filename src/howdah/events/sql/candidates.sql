-- candidates: the live nodes, with the consumers they can run.
-- in:  $1 seconds after which a silent node is dead float8
-- out: id, consumers (json text: name to partitions), drains (whether it takes nothing new), excluded (consumers that it
--      declared otherwise than is current)

select n.id, n.consumers::text as consumers, n.state = 'draining' as drains,
    array(select k from json_object_keys(n.consumers) k where {schema}.declares_other_filter(n.id, k)) as excluded
from {schema}.node n
where n.state <> 'offline' and n.consumers is not null
  and n.beat_at > clock_timestamp() - $1::float8 * interval '1 second'
order by n.id
