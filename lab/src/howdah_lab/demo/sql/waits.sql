-- waits: how long jobs from id $1 on waited for their first start, in seconds: the median and the 99th percentile.
-- in:  $1 lo int8, $2 kinds not to count text[]

select percentile_cont(array[0.5, 0.99]) within group (order by greatest(0,
        extract(epoch from d.finished_at - coalesce(j.run_at, j.enqueued_at)) - d.took_us / 1e6))
from {schema}.done d
join {schema}.job j on j.id = d.id and j.id >= $1
where d.id >= $1
  and d.attempt = 1
  and d.took_us is not null
  and not j.kind = any($2::text[])
