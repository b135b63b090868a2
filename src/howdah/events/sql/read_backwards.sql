-- read_backwards: events by position.
-- in:  $1 after int8, $2 up to int8, $3 stream types text[] or null, $4 types text[] or null, $5 limit,
--      $6 run of the frontier int8
-- out: the columns of Event
--
-- Raises HD412 in another run of the server, as in follow.
-- The filters are hidden from the planner, as in follow_scoped.

select e.position, e.stream_type, e.stream_id, e.version, e.type, e.schema_version, e.at, e.data, e.meta,
    e.correlation, e.causation, e.trace
from {schema}.event e
where (select {schema}.check_run($6::int8)) and e.position > $1 and e.position <= $2
  and (e.stream_type = any($3::text[]))::int is distinct from 0 and (e.type = any($4::text[]))::int is distinct from 0
order by e.position desc
limit $5
