-- hasten: make scheduled, snoozed and retried jobs of these kinds due now.
-- in:  $1 queues text[] (null: every queue), $2 kinds text[]
-- out: the number of these jobs; paused queues are left out

with hastened as (
    update {schema}.later as l
    set due_at = least(l.due_at, clock_timestamp())
    where l.kind = any($2::text[])
      and ($1::text[] is null or l.queue = any($1))
      and not exists (select from {schema}.queue q where q.name = l.queue and q.paused)
    returning 1
)
select count(*) from hastened
