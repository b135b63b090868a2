-- release: requeue the open jobs of these leases, without charging an attempt.
-- in:  $1 node int, $2 tokens int8[]
-- out: leases, requeued, ended

select leases, requeued, ended from {schema}.release($1, $2::int8[])
