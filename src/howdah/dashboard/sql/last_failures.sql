-- last_failures: the failed jobs that were enqueued last.
-- in:  $1 rows int
-- out: id, kind, queue, error, finished_at

select bad.id, j.kind, j.queue, left(bad.error, 300) as error, bad.finished_at
from (
    select d.id, d.error, d.finished_at from {schema}.done d
    where d.state <> 'd' and d.state = 'f'
    order by d.id desc
    limit $1
) bad
cross join lateral (select * from {schema}.job j where j.id = bad.id offset 0) j
order by bad.id desc
