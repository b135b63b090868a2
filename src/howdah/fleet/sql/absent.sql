-- absent: whether a worker that waited for jobs should not get them: it is leaving, or it has been silent for too long.
-- in:  $1 id, $2 seconds float8
-- out: absent

select n.leaving or n.stopped_at is not null or n.beat_at < clock_timestamp() - $2::float8 * interval '1 second' as absent
from {schema}.node n
where n.id = $1
