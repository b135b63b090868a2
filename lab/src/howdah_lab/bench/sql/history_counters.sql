-- history_counters: the same by the minute, as nodes keep it.
-- in:  $1 lo int8, $2 hi int8

insert into {schema}.tally as t (at, queue, kind, outcome, jobs, seconds)
select date_trunc('minute', d.finished_at), j.queue, j.kind, case d.state when 'd' then 'ok' when 'f' then 'failed' else 'cancelled' end,
    count(*), sum(d.took_us) / 1e6
from {schema}.done d
join {schema}.job j on j.id = d.id
where d.id >= $1::int8 and d.id < $2::int8
  and j.id >= $1::int8 and j.id < $2::int8
group by 1, 2, 3, 4
on conflict (at, queue, kind, outcome) do update set jobs = t.jobs + excluded.jobs, seconds = t.seconds + excluded.seconds
