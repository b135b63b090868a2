-- enqueue_keyed: one job with a key, in a transaction of its own; a key that an open transaction holds is not waited for long.
-- in:  $1 kind, $2 args, $3 queue, $4 priority, $5 run_at, $6 delay, $7 max_attempts, $8 timeout, $9 key, $10 meta, $11 trace,
--      $12 how long to wait, as a lock_timeout
-- out: id, and whether it was made (false: a live job holds the key)
--
-- The function takes its first argument from the row that sets the timeout, so the timeout is set before it starts. It ends
-- with the transaction, which is this statement.

select made.id, made.fresh
from (select set_config('lock_timeout', $12::text, true) as patience offset 0) s
cross join lateral {schema}.enqueue(
    case when s.patience is not null then $1 end, $2::text::json, $3, $4, $5::timestamptz, $6::float8, $7, $8::float8, $9::text,
    $10::text::json, $11::text) made
