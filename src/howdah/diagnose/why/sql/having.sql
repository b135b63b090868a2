-- having: the live nodes that have a consumer.
-- in:  $1 consumer, $2 seconds after which a silent node is dead float8, $3 limit int
-- out: id, name, draining

select n.id, n.name, n.state = 'draining' as draining
from {schema}.node n
where n.state <> 'offline'
  and n.beat_at > clock_timestamp() - $2::float8 * interval '1 second'
  and n.consumers::jsonb ? $1
order by n.id
limit $3
