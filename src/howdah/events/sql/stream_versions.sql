-- stream_versions: the current versions of some streams, for a bulk append.
-- in:  $1 stream types text[], $2 stream ids text[]
-- out: stream_type, stream_id, version

select s.stream_type, s.stream_id, coalesce(h.version, 0) as version
from unnest($1::text[], $2::text[]) s(stream_type, stream_id)
left join lateral (
    select e.version from {schema}.event e
    where e.stream_type = s.stream_type and e.stream_id = s.stream_id
    order by e.version desc limit 1) h on true
