-- held_rows: what a worker was given of a table, known to it or not: the answer to a claim may have been lost.
-- in:  $1 node int, $2 name of the table, $3 only leases after this token int8
-- out: token, ids

select token, ids from {schema}.row_lease where node = $1 and store = $2 and token > $3
