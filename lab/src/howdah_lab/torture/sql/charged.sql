-- charged: jobs and rows that were charged for more than they failed on purpose.
-- out: front, mark, attempts (of rows: failures), resets, at (of the first reset, seconds since 1970, or null)

select 'jobs' as front, (j.args ->> 'mark')::int8 as mark, j.attempt as attempts, j.resets,
    (select extract(epoch from min(a.ended_at))::float8
     from {schema}.attempt a where a.id = j.id and a.outcome = 'lost') as at
from {schema}.jobs j
where j.queue in ('jobs', 'fleet')
  and j.kind in ('effect', 'stumble', 'plain', 'threaded', 'remote')
  and (j.resets > 0 or j.attempt > 1 + case when j.kind = 'stumble' then (j.args ->> 'mark')::int8 % 3 else 0 end)
union all
select 'rows', r.mark, r.num_failures, r.num_resets,
    (select extract(epoch from min(s.at))::float8 from {run_schema}.reset_row s where s.mark = r.mark)
from {run_schema}.rows r
where r.num_resets > 0 or r.num_failures > 0
