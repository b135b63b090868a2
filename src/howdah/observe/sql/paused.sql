-- paused: the paused queues.
-- out: name, paused_by

select name, coalesce(paused_by, '') as paused_by
from {schema}.queue
where paused
order by name
