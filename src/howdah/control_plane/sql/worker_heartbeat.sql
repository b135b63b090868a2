-- worker_heartbeat: store the heartbeat of a worker. Draining and gone workers stay so. Commits asynchronously.
-- in:  $1 id, $2 running int
-- out: state

update {schema}.node n
set beat_at = clock_timestamp(), running = $2,
    state = case when n.leaving then 'draining' when $2 > 0 then 'busy' else 'idle' end
from set_config('synchronous_commit', 'off', true)
where n.id = $1 and n.remote and n.stopped_at is null
returning n.state
