-- try_lock: lead by a lock of this session's, which is gone with the session.
-- in:  $1 what the key is made from
-- out: locked

select pg_try_advisory_lock(hashtextextended($1, 0)) as locked
