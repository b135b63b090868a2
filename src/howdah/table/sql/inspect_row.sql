-- inspect_row: one row, with everything that a claim checks.
-- in:  $1 id of the row; the values of the table's own condition, from $2 on
-- out: state, due (whether its time has come), wanted (whether it is a row of this kind), costs, and the contract's columns
--
-- Comments in angle brackets are replaced by SQL made from the table's options.

select {alias}.{state}::text as state, clock_timestamp() as now, coalesce({alias}.{cancel}, false) as cancel,
    {alias}.{process_after} as process_after, {alias}.{queued_at} as queued_at,
    {alias}.{started_at} as started_at, {alias}.{finished_at} as finished_at,
    {alias}.{worker_hostname}::text as worker, left({alias}.{failure_message}, 1000) as message,
    coalesce({alias}.{num_failures}, 0)::int as failures, coalesce({alias}.{num_resets}, 0)::int as resets,
    extract(epoch from clock_timestamp() - {alias}.{last_heartbeat_at})::float8 as silent,
    {alias}.{process_after} is null or {alias}.{process_after} <= now() as due,
    coalesce(true/*<where>*/, false) as wanted,
    array[/*<costs>*/]::float8[] as costs
from {namespace}.{table} as {alias}
where {alias}.{id} = $1::pg_catalog.{id_type}
