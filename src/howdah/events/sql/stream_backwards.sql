-- stream_backwards: the events of one stream, by version.
-- in:  $1 stream type, $2 stream id, $3 after version int8, $4 before version int8, $5 types text[] or null, $6 limit
-- out: the columns of Event

select e.position, e.stream_type, e.stream_id, e.version, e.type, e.schema_version, e.at, e.data, e.meta,
    e.correlation, e.causation, e.trace
from {schema}.event e
where e.stream_type = $1 and e.stream_id = $2 and e.version > $3 and e.version < $4
  and ($5::text[] is null or e.type = any($5))
order by e.version desc
limit $6
