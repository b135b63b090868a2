-- wanted: parked events somebody wants to be tried again.
-- in:  $1 consumer, $2 part, $3 limit
-- out: the columns of Event

select e.position, e.stream_type, e.stream_id, e.version, e.type, e.schema_version, e.at, e.data, e.meta,
    e.correlation, e.causation, e.trace
from {schema}.parked p
join {schema}.event e on e.position = p.position
where p.consumer = $1 and p.part = $2::int and p.wanted_at is not null
order by p.position
limit $3
