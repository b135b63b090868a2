-- own_rows: those of the given leases on rows that belong to the worker.
-- in:  $1 node int, $2 tokens int8[]
-- out: token

select token from {schema}.row_lease where token = any($2::int8[]) and node = $1
