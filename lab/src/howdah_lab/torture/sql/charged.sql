-- charged: jobs and rows that were charged for more than they failed on purpose.
-- out: front, mark, attempts (of rows: failures), resets

select 'jobs' as front, (args ->> 'mark')::int8 as mark, attempt as attempts, resets
from {schema}.jobs
where queue in ('jobs', 'fleet')
  and kind in ('effect', 'stumble', 'plain', 'threaded', 'remote')
  and (resets > 0 or attempt > 1 + case when kind = 'stumble' then (args ->> 'mark')::int8 % 3 else 0 end)
union all
select 'rows', mark, num_failures, num_resets
from {yard}.rows
where num_resets > 0 or num_failures > 0
