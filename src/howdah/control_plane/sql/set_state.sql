-- set_state: set a worker busy after a claim, or idle once it holds nothing. Commits asynchronously: the next heartbeat repeats it.
-- in:  $1 id, $2 claimed bool
-- out: state; no row if it did not change

update {schema}.node n
set state = case when $2::bool then 'busy' else 'idle' end
from set_config('synchronous_commit', 'off', true)
where n.id = $1 and n.remote and n.state = case when $2::bool then 'idle' else 'busy' end
  and ($2::bool or not exists (select from {schema}.lease l where l.node = $1))
returning n.state
