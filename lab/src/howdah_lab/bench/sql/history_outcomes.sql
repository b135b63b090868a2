-- history_outcomes: how these jobs ended: one in fifty failed, one in a thousand was cancelled, the others succeeded.
-- in:  $1 lo int8, $2 hi int8

insert into {schema}.done (id, finished_at, took_us, node, attempt, state, error)
select j.id, j.enqueued_at + interval '1 second' * (0.05 + j.id % 40 / 20.0), 1000 * (1 + j.id % 700), 1 + j.id % 20,
    case when j.id % 50 = 7 then 5 when j.id % 33 = 0 then 2 else 1 end, s.state,
    case s.state
        when 'f' then (array['TimeoutError', 'ValueError', 'ConnectionError', 'KeyError'])[1 + j.id / 50 % 4] || ': '
            || (array['no answer from', 'nothing left at', 'refused by', 'cut off by', 'not known to'])[1 + j.id / 200 % 5]
            || format(' https://api-%s.example.com/orders/%s after %s.%s s', j.id % 9, j.id, j.id % 30, j.id % 10)
        when 'c' then 'cancelled while waiting'
    end
from {schema}.job j
cross join lateral (
    select case when j.id % 50 = 7 then 'f' when j.id % 1000 = 3 then 'c' else 'd' end::"char" as state) s
where j.id >= $1::int8 and j.id < $2::int8
