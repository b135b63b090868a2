-- history_attempts: the attempts that failed, of those that failed in the end and of those that did not.
-- in:  $1 lo int8, $2 hi int8

insert into {schema}.attempt (id, attempt, node, outcome, started_at, ended_at, error, message, traceback)
select d.id, a, d.node, case when d.state = 'f' and a = d.attempt then 'failed' else 'retry' end,
    d.finished_at - interval '1 second', d.finished_at, split_part(coalesce(d.error, 'TimeoutError: slow'), ': ', 1),
    split_part(coalesce(d.error, 'TimeoutError: slow'), ': ', 2), repeat('  File "shop/jobs.py", line 17, in send' || chr(10), 12)
from {schema}.done d
cross join lateral generate_series(1, d.attempt - case d.state when 'f' then 0 else 1 end) a
where d.id >= $1::int8 and d.id < $2::int8
  and (d.state = 'f' or d.attempt > 1)
