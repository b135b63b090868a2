-- turn: a worker took work, or has none left. Not worth a flush to disk: its next heartbeat says it again.
-- in:  $1 id, $2 took bool
-- out: state, if it is another now

update {schema}.node n
set state = case when $2::bool then 'busy' else 'idle' end
from set_config('synchronous_commit', 'off', true)
where n.id = $1 and n.remote and n.state = case when $2::bool then 'idle' else 'busy' end
  and ($2::bool or not exists (select from {schema}.lease l where l.node = $1))
returning n.state
