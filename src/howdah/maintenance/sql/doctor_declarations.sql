-- doctor_declarations: consumers that live nodes declare with different filters, for longer than a release takes.
-- in:  $1 seconds after which a silent node is dead float8, $2 seconds a release may take float8
-- out: consumer, nodes text[] (that declare another filter than the current one)

select o.consumer, array_agg(n.name order by n.name) as nodes
from {schema}.declarers($1::float8) o
join {schema}.node n on n.id = o.node
where n.started_at < clock_timestamp() - $2::float8 * interval '1 second'
  and {schema}.declares_other_filter(o.node, o.consumer)
group by o.consumer
order by o.consumer
