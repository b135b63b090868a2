-- ended: how these jobs ended, of those that did.
-- in:  $1 ids int8[]
-- out: id, state

select d.id, case d.state when 'd' then 'done' when 'f' then 'failed' else 'cancelled' end as state
from unnest($1::int8[]) p(id)
cross join lateral (select id, state from {schema}.done d where d.id = p.id offset 0) d
