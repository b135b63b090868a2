-- appended: the newest events, including those that consumers may not read yet.
-- in:  $1 stream type text (null: every stream), $2 stream id text, $3 type text (null: every type), $4 rows int
-- out: the columns of Event, newest first; JSON as text

select e.position, e.stream_type, e.stream_id, e.version, e.type, e.schema_version, e.at, e.data::text as data, e.meta::text as meta,
    e.correlation, e.causation, e.trace
from {schema}.event e
where ($1::text is null or (e.stream_type = $1 and e.stream_id = $2))
  and ($3::text is null or e.type = $3)
order by e.position desc
limit $4
