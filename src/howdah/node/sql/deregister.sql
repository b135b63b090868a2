-- deregister: a process ends by itself.
-- in:  $1 node int

update {schema}.node set state = 'offline', running = 0, stopped_at = clock_timestamp(), beat_at = clock_timestamp() where id = $1
