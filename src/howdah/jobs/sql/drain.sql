-- drain: a node shall take no more; never undone. It hears of it by its next heartbeat.
-- in:  $1 node int
-- out: name, was, state

update {schema}.node n
set leaving = true, state = case when n.state = 'offline' then n.state else 'draining' end
from (select id, state from {schema}.node where id = $1 for update) o
where n.id = o.id
returning n.name, o.state as was, n.state
