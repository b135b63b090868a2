-- get: everything about these jobs.
-- in:  $1 ids int8[], $2 bytes int (larger args, meta and results are left out, and args whose meta is: it says what in
--      them is secret)
-- out: one row per job that exists, newest first
--
-- The function touches only the partitions that hold the jobs. The stored size is asked first: it is known without unpacking.
-- A moment that Python cannot read is shown as the nearest it can: older releases let such rows in.

select v.id, v.kind, v.queue, v.state, v.priority, v.attempt, v.max_attempts, v.resets, v.key,
    case when pg_column_size(v.args) <= $2::int and octet_length(v.args::text) <= $2
        and (v.meta is null or (pg_column_size(v.meta) <= $2 and octet_length(v.meta::text) <= $2)) then v.args end as args,
    case when pg_column_size(v.meta) <= $2::int and octet_length(v.meta::text) <= $2 then v.meta end as meta,
    v.trace, v.timeout, v.enqueued_at,
    least(greatest(v.run_at, '0001-01-02 00:00+00'), '9999-12-29 00:00+00') as run_at,
    v.started_at, v.finished_at,
    v.node, n.name as node_name, v.token, v.expires_at,
    case when pg_column_size(v.result) <= $2::int and octet_length(v.result::text) <= $2 then v.result end as result,
    v.error, v.cancel_asked
from {schema}.jobs_of($1::int8[]) v
left join {schema}.node n on n.id = v.node
order by v.id desc
