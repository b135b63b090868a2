-- doctor_serves: how many live nodes work on a table.
-- in:  $1 seconds of silence float8, $2 name of the table text
-- out: nodes

select count(*) as nodes
from {schema}.node n
where n.state not in ('offline', 'draining')
  and n.beat_at >= clock_timestamp() - $1::float8 * interval '1 second'
  and ($2::text = any(n.kinds) or $2 = any(n.tables))
