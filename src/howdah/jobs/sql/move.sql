-- move: waiting jobs get another queue, now and when they are retried.
-- in:  $1 ids int8[], $2 queue text
-- out: id, said: moved | same | running | over | unknown; was_queue, was_priority of those that changed

select id, said, was_queue, was_priority from {schema}.move($1::int8[], $2::text)
