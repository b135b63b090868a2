-- follow: the next events of a consumer, up to a frontier seen in an earlier statement.
-- in:  $1 after int8, $2 up to int8, $3 limit
-- out: the columns of Event

select e.position, e.stream_type, e.stream_id, e.version, e.type, e.schema_version, e.at, e.data, e.meta,
    e.correlation, e.causation, e.trace
from {schema}.event e
where e.position > $1 and e.position <= $2
order by e.position
limit $3
