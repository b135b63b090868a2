-- ack: record any outcome.
-- in:  $1 node int, then one array per column: $2 tokens, $3 ids, $4 attempts, $5 outcomes, $6 delays, $7 took,
--      $8 results, $9 error classes, $10 messages, $11 tracebacks; $12 leases finished by this
-- out: token, id and final fate of those that were still ours

select token, id, fate
from {schema}.ack($1, $2::int8[], $3::int8[], $4::int2[], $5::"char"[], $6::float8[], $7::int8[],
    $8::json[], $9::text[], $10::text[], $11::text[], $12::int8[])
