-- events: every event that was committed.
-- out: position, stream, version, type, mark

select position, stream_id as stream, version, type, (data ->> 'mark')::int8 as mark
from {schema}.event
order by position
