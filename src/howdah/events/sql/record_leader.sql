-- record_leader: record the node that leads by an advisory lock, and the start of its term. No row: another session has the lock.
-- in:  $1 node int, $2 seconds until it must be renewed float8, $3 source of the lock's key
-- out: term: when it began to lead. Later than every term before, although the clock may have gone back
--
-- The lock is checked again: this may be another session than the one that got the lock, and then the lock is gone.

update {schema}.leader l
set node = $1, expires_at = clock_timestamp() + $2::float8 * interval '1 second',
    since = case when l.node = $1 then l.since else greatest(clock_timestamp(), l.since + interval '1 microsecond') end
where pg_try_advisory_xact_lock(hashtextextended($3, 0))
returning since as term
