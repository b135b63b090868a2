-- states: the state of each of these jobs that exists.
-- in:  $1 ids int8[]
-- out: id, state

select j.id, j.state
from unnest($1::int8[]) p(id)
cross join lateral (select v.id, v.state from {schema}.jobs v where v.id = p.id offset 0) j
