-- drain: give a worker no more work; cannot be undone.
-- in:  $1 id
-- out: was, state

update {schema}.node n
set leaving = true, state = case when n.state = 'offline' then n.state else 'draining' end
from (select id, state from {schema}.node where id = $1 and remote for update) o
where n.id = o.id
returning o.state as was, n.state
