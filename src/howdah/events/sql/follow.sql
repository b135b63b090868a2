-- follow: the next events of a consumer, up to a frontier seen in an earlier statement.
-- in:  $1 after int8, $2 up to int8, $3 limit, $4 run of that frontier int8
-- out: the columns of Event
--
-- Raises HD412 in another run of the server: positions up to the frontier may be allocated again there.

select e.position, e.stream_type, e.stream_id, e.version, e.type, e.schema_version, e.at, e.data, e.meta,
    e.correlation, e.causation, e.trace
from {schema}.event e
where (select {schema}.check_run($4::int8)) and e.position > $1 and e.position <= $2
order by e.position
limit $3
