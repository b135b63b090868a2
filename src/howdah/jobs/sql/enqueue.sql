-- enqueue: one job.
-- in:  $1 kind, $2 args, $3 queue, $4 priority, $5 run_at, $6 delay, $7 max_attempts, $8 timeout, $9 key, $10 meta, $11 trace
-- out: id, and whether it was made (false: a live job holds the key)

select id, fresh
from {schema}.enqueue($1, $2::text::json, $3, $4, $5::timestamptz, $6::float8, $7, $8::float8, $9::text, $10::text::json, $11::text)
