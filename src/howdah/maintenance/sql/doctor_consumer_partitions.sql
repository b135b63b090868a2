-- doctor_consumer_partitions: consumers that live nodes declare with different numbers of partitions for longer than a release.
-- in:  $1 seconds after which a silent node is dead float8, $2 seconds a release may take float8
-- out: consumer, partitions (the number it has), declared text[] (each number with the nodes that declare it)

select w.consumer, c.partitions, array_agg(format('%s by %s', w.wanted, w.nodes) order by w.wanted) as declared
from (
    select k.key as consumer, k.value::int as wanted, string_agg(n.name, ', ' order by n.name) as nodes
    from {schema}.node n, lateral json_each_text(n.consumers) k
    where n.state <> 'offline' and n.consumers is not null
      and n.beat_at > clock_timestamp() - $1::float8 * interval '1 second'
      and n.started_at < clock_timestamp() - $2::float8 * interval '1 second'
    group by k.key, k.value
) w
join {schema}.consumer c on c.name = w.consumer
group by w.consumer, c.partitions
having count(*) > 1
order by w.consumer
