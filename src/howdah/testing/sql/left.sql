-- left: true if jobs of these kinds can be claimed now.
-- in:  $1 queues text[] (null: every queue), $2 kinds text[]
-- out: boolean; paused queues are left out

select exists (
    select
    from (
        select r.queue, r.kind from {schema}.ready r
        union all
        select l.queue, l.kind from {schema}.later l where l.due_at <= clock_timestamp()
    ) w
    where w.kind = any($2::text[])
      and ($1::text[] is null or w.queue = any($1))
      and not exists (select from {schema}.queue q where q.name = w.queue and q.paused)
)
