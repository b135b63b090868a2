-- held_rows: what a worker was given of a table, known to it or not: the answer to a claim may have been lost.
-- in:  $1 node int, $2 name of the table, $3 only these tokens int8[], or null for all
-- out: token, ids

select token, ids
from {schema}.row_lease
where node = $1 and store = $2 and ($3::int8[] is null or token = any($3::int8[]))
