-- parked_to_retry: parked events whose retry was requested.
-- in:  $1 consumer, $2 part, $3 limit, $4 run of the server int8
-- out: the columns of Event
--
-- Raises HD412 in another run of the server: another event may have the position there.

select e.position, e.stream_type, e.stream_id, e.version, e.type, e.schema_version, e.at, e.data, e.meta,
    e.correlation, e.causation, e.trace
from {schema}.parked p
join {schema}.event e on e.position = p.position
where (select {schema}.check_run($4::int8)) and p.consumer = $1 and p.part = $2::int and p.wanted_at is not null
order by p.position
limit $3
