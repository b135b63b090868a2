-- parked: events set aside, oldest first.
-- in:  $1 consumer or null for all, $2 after position int8, $3 limit
-- out: the fields of ParkedRow

select p.consumer, p.part, p.position, e.stream_type || '-' || e.stream_id as stream, e.version, e.type, e.at,
    e.data, p.error, p.message, p.traceback, p.failures, p.parked_at, p.wanted_at
from {schema}.parked p
left join {schema}.event e on e.position = p.position
where ($1::text is null or p.consumer = $1) and p.position > $2
order by p.position, p.consumer
limit $3
