-- open_transactions: transactions that may have looked before the sign hung; to be asked after it hung, in a transaction of its own.
-- out: their ids int8[]
--
-- A snapshot lists only those below the newest that is over. Younger ones are found by taking the next id ourselves: all
-- between were given out, and none of them is over.

select array(select x::text::int8 from pg_snapshot_xip(n.seen) x)
    || array(select generate_series(pg_snapshot_xmax(n.seen)::text::int8, n.ours::text::int8 - 1)) as underway
from set_config('synchronous_commit', 'off', true)
cross join lateral (select pg_current_snapshot() as seen, pg_current_xact_id() as ours offset 0) n
