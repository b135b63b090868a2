-- held_rows: all rows leased to a worker, including those it does not know of because the response to its claim was lost.
-- in:  $1 node int, $2 name of the table, $3 only these tokens int8[], or null for all
-- out: token, ids

select token, ids
from {schema}.row_lease
where node = $1 and store = $2 and ($3::int8[] is null or token = any($3::int8[]))
