-- open_transactions: transactions that may have checked for sleeping workers before this one announced its sleep. Runs
-- after the announcement, in a transaction of its own.
-- out: their ids int8[]
--
-- A snapshot lists only transactions below the newest finished one. Newer ones are found by allocating the next id: all ids
-- in between are allocated, and none of these transactions has finished.

select array(select x::text::int8 from pg_snapshot_xip(n.seen) x)
    || array(select generate_series(pg_snapshot_xmax(n.seen)::text::int8, n.ours::text::int8 - 1)) as underway
from set_config('synchronous_commit', 'off', true)
cross join lateral (select pg_current_snapshot() as seen, pg_current_xact_id() as ours offset 0) n
