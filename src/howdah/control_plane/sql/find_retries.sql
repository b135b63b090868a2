-- find_retries: attempts that this worker finished with a retry: a repeated report finds no lease any more.
-- in:  $1 node int, $2 jobs int8[]
-- out: id, attempt

select a.id, a.attempt from {schema}.attempt a
where a.id = any($2::int8[]) and a.node = $1 and a.outcome = 'retry'
