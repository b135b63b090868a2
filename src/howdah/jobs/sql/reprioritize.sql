-- reprioritize: waiting jobs get another priority, now and when they are retried.
-- in:  $1 ids int8[], $2 priority int
-- out: id, said: reprioritized | same | running | over | unknown; was_queue, was_priority of those that changed

select id, said, was_queue, was_priority from {schema}.reprioritize($1::int8[], $2::int)
