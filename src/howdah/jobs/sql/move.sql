-- move: waiting jobs get another queue, now and when they are retried.
-- in:  $1 ids int8[], $2 only those that wait in this queue, text or null, $3 the new queue text
-- out: id, result: moved | same | running | over | changed | unknown; was_queue, was_priority of those that changed

select id, result, was_queue, was_priority from {schema}.move_or_reprioritize($1::int8[], $2::text, $3::text, null, 'moved')
