-- try_lock: lead by a lock of this session's, which is gone with the session.
-- in:  $1 what the key is made from, $2 milliseconds after which the server ends this session when nobody uses it, text
-- out: locked
--
-- Without a timeout a frozen leader would lead for ever.

select pg_try_advisory_lock(hashtextextended($1, 0)) as locked, set_config('idle_session_timeout', $2, false)
