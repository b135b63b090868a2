-- unrenewable: leases of workers without a database that could not be renewed, since no control plane reached this server.
-- in:  $1 tokens int8[], $2 seconds that workers have after an outage to renew them float8
-- out: token

select token from {schema}.row_lease where token = any($1::int8[]) and not {schema}.workers_had_contact($2::float8)
