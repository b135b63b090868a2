-- candidates: the live nodes, with what they can consume.
-- in:  $1 seconds after which a silent node is dead float8
-- out: id, consumers (json text: name to partitions), drains (whether it takes nothing new)

select n.id, n.consumers::text as consumers, n.state = 'draining' as drains
from {schema}.node n
where n.state <> 'offline' and n.consumers is not null
  and n.beat_at > clock_timestamp() - $1::float8 * interval '1 second'
order by n.id
