-- deregister: a process ends by itself.
-- in:  $1 node int
--
-- It consumes no more, so a node with an older declaration need not wait for it to return.

update {schema}.node
set state = 'offline', running = 0, stopped_at = clock_timestamp(), beat_at = clock_timestamp(), consumers = null
where id = $1
