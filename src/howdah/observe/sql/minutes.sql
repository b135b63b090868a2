-- minutes: what finished lately, by minute and queue.
-- in:  $1 minutes int
-- out: at, queue, done, failed, retried

select at, queue,
    coalesce(sum(jobs) filter (where outcome = 'ok'), 0)::int8 as done,
    coalesce(sum(jobs) filter (where outcome in ('failed', 'poison')), 0)::int8 as failed,
    coalesce(sum(jobs) filter (where outcome = 'retry'), 0)::int8 as retried
from {schema}.tally
where at > date_trunc('minute', now()) - $1::int * interval '1 minute'
group by at, queue
