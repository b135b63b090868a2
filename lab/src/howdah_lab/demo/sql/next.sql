-- next: what falls due next.
-- in:  $1 most int

select l.id, l.kind, l.attempt, extract(epoch from l.due_at - clock_timestamp())::float8 as seconds
from {schema}.later l
order by l.due_at
limit $1
