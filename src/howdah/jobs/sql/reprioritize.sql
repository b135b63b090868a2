-- reprioritize: waiting jobs get another priority, now and when they are retried.
-- in:  $1 ids int8[], $2 only those that wait in this queue, text or null, $3 priority int
-- out: id, result: reprioritized | same | running | over | changed | unknown; was_queue, was_priority of those that changed

select id, result, was_queue, was_priority
from {schema}.move_or_reprioritize($1::int8[], $2::text, null, $3::int, 'reprioritized')
