-- heartbeat_rows: renew leases on rows that belong to the worker.
-- in:  $1 node int, $2 tokens int8[]
-- out: token

with mine as materialized (
    select token
    from {schema}.row_lease
    where token = any($2::int8[]) and node = $1
    order by token
    for no key update
)
update {schema}.row_lease set heard_at = clock_timestamp()
where token = any(array(select token from mine))
returning token
