-- try_lock: take the leadership by an advisory lock of this session, which is released when the session ends.
-- in:  $1 source of the lock's key, $2 milliseconds after which the server ends this session when idle, text
-- out: locked
--
-- Without a timeout a frozen leader would lead for ever.

select pg_try_advisory_lock(hashtextextended($1, 0)) as locked, set_config('idle_session_timeout', $2, false)
