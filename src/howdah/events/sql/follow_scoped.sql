-- follow_scoped: the next events of a consumer that filters them. The caller bounds the range of positions.
-- in:  $1 after int8, $2 up to int8, $3 limit, $4 stream types text[] or null, $5 types text[] or null, $6 part, $7 partitions,
--      $8 run of that frontier int8
-- out: the columns of Event
--
-- Raises HD412 in another run of the server, as in follow.
--
-- Written as numbers, the filters are hidden from the planner, which then scans by position until it has enough rows,
-- whatever the last ANALYZE found. Null is distinct from 0: no filter.

select e.position, e.stream_type, e.stream_id, e.version, e.type, e.schema_version, e.at, e.data, e.meta,
    e.correlation, e.causation, e.trace
from {schema}.event e
where (select {schema}.check_run($8::int8)) and e.position > $1 and e.position <= $2
  and (e.stream_type = any($4::text[]))::int is distinct from 0 and (e.type = any($5::text[]))::int is distinct from 0
  and ($7::int = 1 or {schema}.partition_of(e.stream_type, e.stream_id, $7) = $6::int)::int is distinct from 0
order by e.position
limit $3
