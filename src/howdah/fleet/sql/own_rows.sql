-- own_rows: which of these leases on rows are a worker's own.
-- in:  $1 node int, $2 tokens int8[]
-- out: token

select token from {schema}.row_lease where token = any($2::int8[]) and node = $1
