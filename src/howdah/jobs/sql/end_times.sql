-- end_times: the final state and end time of those of these jobs that have ended.
-- in:  $1 ids int8[]
-- out: id, state, finished_at

select d.id, case d.state when 'd' then 'done' when 'f' then 'failed' else 'cancelled' end as state, d.finished_at
from unnest($1::int8[]) p(id)
cross join lateral (select id, state, finished_at from {schema}.done d where d.id = p.id offset 0) d
