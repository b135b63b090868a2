-- activity: since when a session is in its transaction, and in its statement.
-- in:  $1 pid int
-- out: xact_start, query_start

select a.xact_start, a.query_start from pg_stat_activity a where a.pid = $1
