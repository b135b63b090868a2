-- drain: a worker shall take no more; never undone.
-- in:  $1 id
-- out: state

update {schema}.node n
set leaving = true, state = case when n.state = 'offline' then n.state else 'draining' end
where n.id = $1 and n.remote
returning n.state
