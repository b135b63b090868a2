-- read_by_hand: the next events, as loops written by hand read them.
-- in:  $1 after int8, $2 limit
-- out: position, stream_type, stream_id, version, type, schema_version, at, data, meta, correlation, causation, trace

select position, stream_type, stream_id, version, type, schema_version, at, data, meta, correlation, causation, trace
from {schema}.event
where position > $1
order by position
limit $2
