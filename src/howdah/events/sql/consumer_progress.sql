-- consumer_progress: the position of a consumer's last partition, and whether any is halted. No row: no such consumer.
-- in:  $1 consumer
-- out: position (of the part furthest behind), halted, paused, error

select min(k.position) as position, bool_or(k.halted) as halted, bool_or(c.paused) as paused,
    max(k.error || ': ' || k.message) filter (where k.halted) as error
from {schema}.consumer c
join {schema}.checkpoint k on k.consumer = c.name
where c.name = $1
having count(*) > 0
