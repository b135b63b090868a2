-- find: jobs, oldest first.
-- in:  $1 kind text (null: every kind), $2 rows int
-- out: all fields of each job

select v.id, v.kind, v.queue, v.state, v.priority, v.attempt, v.max_attempts, v.resets, v.key, v.args, v.meta,
    v.trace, v.timeout, v.enqueued_at,
    least(greatest(v.run_at, '0001-01-02 00:00+00'), '9999-12-29 00:00+00') as run_at,
    v.started_at, v.finished_at, v.node, n.name as node_name, v.token,
    v.expires_at, v.result, v.error, v.cancel_asked
from {schema}.jobs v
left join {schema}.node n on n.id = v.node
where $1::text is null or v.kind = $1
order by v.id
limit $2
