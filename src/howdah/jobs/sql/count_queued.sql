-- count_queued: how many jobs wait, also scheduled ones and those waiting to retry; from runs, not from jobs.
-- in:  $1 queue, $2 kind (each text or null)
-- out: jobs

select (
    select coalesce(sum(hi - lo), 0)
    from {schema}.ready
    where ($1::text is null or queue = $1)
      and ($2::text is null or kind = $2)
)::int8 + (
    select count(*)
    from {schema}.later
    where ($1::text is null or queue = $1)
      and ($2::text is null or kind = $2)
) as jobs
