-- beat: a worker lives. Draining is never undone; gone workers stay gone. Not worth a flush to disk.
-- in:  $1 id, $2 running int
-- out: state

update {schema}.node n
set beat_at = clock_timestamp(), running = $2,
    state = case when n.leaving then 'draining' when $2 > 0 then 'busy' else 'idle' end
from set_config('synchronous_commit', 'off', true)
where n.id = $1 and n.remote and n.stopped_at is null
returning n.state
